"""Amazon's environment variables and files, as other S3 clients read them.

In order: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the profile AWS_PROFILE
(default: `default`) of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), then of AWS_CONFIG_FILE
(~/.aws/config). Region: AWS_REGION, AWS_DEFAULT_REGION, the profile's. Endpoint:
AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's. Options of a URI take precedence.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from .. import _core

KEYS = {
    "s3.access_key": ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
    "s3.secret_key": ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
    "s3.session_token": ("AWS_SESSION_TOKEN", "aws_session_token"),
}
PLACE = {
    "s3.region": (("AWS_REGION", "AWS_DEFAULT_REGION"), "region"),
    "s3.endpoint": (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "endpoint_url"),
}


def provide() -> None:
    for name, value in find(os.environ).items():
        _core.credential_set(name, value)


def find(variables: Mapping[str, str]) -> dict[str, str | None]:
    """The credentials in the environment; None removes a value that was set before, and absent
    names are unchanged."""
    profile = _profile(variables)
    found: dict[str, str | None] = {}
    keys = {name: variables.get(names[0]) for name, names in KEYS.items()}
    if not (keys["s3.access_key"] and keys["s3.secret_key"]):
        keys = {name: profile.get(names[1]) for name, names in KEYS.items()}
    if keys["s3.access_key"] and keys["s3.secret_key"]:
        # A token belongs to its keys: one of other keys would make them invalid.
        found.update({name: value or None for name, value in keys.items()})
    for name, (names, entry) in PLACE.items():
        values = [variables.get(variable) for variable in names] + [profile.get(entry)]
        if value := next((v for v in values if v), None):
            found[name] = value
    return found


def _profile(variables: Mapping[str, str]) -> dict[str, str]:
    """The entries of the profile in both files; those of the credentials file take precedence."""
    name = variables.get("AWS_PROFILE") or variables.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(variables.get("HOME") or "~").expanduser() / ".aws"
    files = (
        (variables.get("AWS_CONFIG_FILE") or home / "config", f"profile {name}"),
        (variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", name),
    )
    entries: dict[str, str] = {}
    for path, section in files:
        parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="\0")
        try:
            parser.read(Path(path).expanduser())
        except (configparser.Error, UnicodeDecodeError):
            continue  # another program's file, whose contents are unknown
        for one in (name, section) if name == "default" else (section,):
            if parser.has_section(one):
                entries.update((k, v.strip()) for k, v in parser.items(one) if v)
    return entries
