"""Credentials for stores on storage services, from the environment of this process."""

from __future__ import annotations

from . import aws


def provide(uri: str) -> None:
    """Passes on the credentials for the service of this URI; does nothing for other URIs. Called
    each time a store is opened, so that changed variables and files take effect."""
    if uri[:3].lower() == "s3:":
        aws.provide()
