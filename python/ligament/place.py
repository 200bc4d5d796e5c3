"""The location of a store: a path or a URI with options."""

from __future__ import annotations

import os
import re
import urllib.parse

from .errors import InvalidError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+:")
_PATH_QUERY = re.compile(r"\?[a-z_]+=[^?]*$")


def absolute(uri: str) -> str:
    """The URI with an absolute path: a store does not change when the process changes its
    directory, and is pickled with this URI."""
    if not uri:
        raise InvalidError("the URI of a store is empty")
    if uri.startswith("file:") and not uri.startswith("file:/"):
        return "file://" + urllib.parse.quote(os.getcwd()) + "/" + uri[len("file:") :]
    return uri if _SCHEME.match(uri) else os.path.join(os.getcwd(), uri)


def with_options(uri: str, options: str) -> str:
    """The URI with further options, `key=value`, in its query."""
    query = "?" in uri if _SCHEME.match(uri) else _PATH_QUERY.search(uri)
    return f"{uri}{'&' if query else '?'}{options}" if options else uri


def with_mode(uri: str, mode: str) -> str:
    """The URI that opens the store in a mode; `a` is the default."""
    return uri if mode == "a" else with_options(uri, f"mode={'w' if mode == 'x' else mode}")
