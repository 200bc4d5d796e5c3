"""Credentials for stores on storage services, from the environment of this process."""

from __future__ import annotations

from . import aws


def provide(uri: str) -> None:
    """Passes on what the service of this URI needs; for other URIs does nothing. Called before
    every opening, so that changed variables and files take effect."""
    if uri[:3].lower() == "s3:":
        aws.provide()
