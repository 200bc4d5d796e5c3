"""Numbers with their nouns, "1 tensor", "2 tensors", and lists of names."""

from __future__ import annotations


def count(number: int, noun: str, many: str = "") -> str:
    """The number and the noun; `many` if the plural is not formed with an s."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """ "'a', 'b', 'c' and 2 more": at most so many names."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
