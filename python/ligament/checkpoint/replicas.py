"""Whether the ranks of a job hold replicas of one model (pure)."""

from __future__ import annotations

from ..errors import MismatchError

# Replicas may drift apart by rounding, or between the averages of local training.
_ALIKE = 0.1

ADVICE = (
    "if every rank holds a different part of the model, pass these parts as model=, as pipeline "
    "stages, together with their optimizer: see docs/resume.md#pipeline-stages"
)


def check(samples: list[dict[str, list[float]]]) -> None:
    """Raises if ranks hold unrelated values under one name: only those of one rank would be
    saved. `samples` has a few values of parameters for each rank."""
    known: dict[str, tuple[int, list[float]]] = {}
    for rank, mine in enumerate(samples):
        for name, values in mine.items():
            first, others = known.setdefault(name, (rank, values))
            if _are_unrelated(values, others):
                raise MismatchError(
                    f"{name} has different values on ranks {first} and {rank} ({ADVICE})"
                )


def _are_unrelated(ours: list[float], theirs: list[float]) -> bool:
    if len(ours) != len(theirs):
        return True
    pairs = list(zip(ours, theirs, strict=True))
    apart = sum(abs(a - b) > _ALIKE * max(abs(a), abs(b)) for a, b in pairs)
    return 2 * apart > len(pairs)
