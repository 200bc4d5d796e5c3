"""FTPipe's tracer has lists of functions to follow; Ligament's follows all of them."""

from __future__ import annotations

from typing import Any


def register_new_traced_function(function: Any, namespace: Any) -> None:
    """Does nothing: every function is traced."""


def register_new_explicit_untraced_function(function: Any, namespace: Any) -> None:
    """Does nothing: operations that involve no tensor are not in the trace."""


def used_namespaces() -> list[str]:
    """The modules that written stages import."""
    return ["torch"]
