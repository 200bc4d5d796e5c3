"""Failures of operations, which TMCI's users catch as `tf.errors.InternalError`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ligament.errors import Error

_Call = TypeVar("_Call", bound=Callable[..., Any])


def operation(call: _Call) -> _Call:
    """Wraps a call so that its Ligament errors are also TensorFlow's, if TensorFlow is imported."""

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Error as error:
            tf = sys.modules.get("tensorflow")
            if tf is None or isinstance(error, tf.errors.OpError):
                raise
            raise _both(error, tf.errors.InternalError) from None

    return checked  # type: ignore[return-value]


def _both(error: Error, internal: Any) -> Error:
    """The same error as an instance of both classes."""
    kinds: tuple[Any, ...] = (type(error), internal)
    made: Any = _kind(*kinds)(*error.args)
    made.__dict__.update(error.__dict__)
    internal.__init__(made, None, None, str(error))
    made.args = error.args
    made.__traceback__ = error.__traceback__
    return made  # type: ignore[no-any-return]


@functools.cache
def _kind(error: Any, internal: Any) -> Any:
    return type(error.__name__, (error, internal), {"__str__": error.__str__})
