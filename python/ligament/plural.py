"""Numbers with their nouns: "1 tensor", "2 tensors"."""

from __future__ import annotations


def count(number: int, noun: str, many: str = "") -> str:
    """The number and the noun; `many` if the plural is not formed with an s."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"
