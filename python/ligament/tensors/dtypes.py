"""Names and numbers of dtypes, and their names in each framework."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .. import _core

NAMES: dict[str, int] = _core.dtype_names()
_BY_CODE: dict[int, str] = {code: name for name, code in NAMES.items()}
BYTES: dict[int, int] = {code: _core.dtype_bytes(code) for code in _BY_CODE}


def name_of(code: int) -> str:
    """ "float32" of a dtype number."""
    return _BY_CODE.get(code, f"dtype {code}")


def can_cast(stored: int, wanted: int) -> bool:
    """Whether a load may convert: to floating-point types only, and not from complex to real."""
    real, complex_ = (_BY_CODE.get(wanted, "").startswith(kind) for kind in ("float", "complex"))
    real = real or wanted == NAMES["bfloat16"]
    return complex_ or (real and not _BY_CODE.get(stored, "").startswith("complex"))


def code_of(name: str) -> int:
    """The number of a dtype; 0 for an unknown name."""
    return NAMES.get(name, 0)


def _numpy_dtype(name: str) -> np.dtype[Any] | None:
    kind = getattr(ml_dtypes, name, None)
    if kind is not None:
        made: np.dtype[Any] = np.dtype(kind)
        return made
    try:
        return np.dtype(name)
    except TypeError:
        return None


# NumPy's dtype of each number. It has no complex32 and no packed fp4: these come back as pairs of
# halves and as bytes.
NUMPY: dict[int, np.dtype[Any]] = {}
for _name, _code in NAMES.items():
    _dtype = _numpy_dtype(_name)
    if _dtype is not None:
        NUMPY[_code] = _dtype
FROM_NUMPY: dict[np.dtype[Any], int] = {dtype: code for code, dtype in NUMPY.items()}
