"""One plan for all ranks of a job: the first rank measures and decides, the others use its plan.

Ranks that measure independently get different figures, and may choose different stages.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch.distributed as dist

from ligament.checkpoint.ranks import Ranks, job, packed, raised
from ligament.errors import InvalidError, MismatchError

Trace = TypeVar("Trace")
Plan = TypeVar("Plan", bound="Sendable")


class Sendable(Protocol):
    """A plan, as far as it is known here."""

    def as_json(self) -> dict[str, Any]:
        """The data from which the other ranks rebuild it."""


_MEASURE_S = 3600.0  # how long the others wait for a plan once all have traced
_calls: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class PlanRanks(Ranks):
    """The ranks that run one pipeline."""

    advice = (
        "every rank of the group calls pipe_model, in the same order "
        "(distributed=False: this process alone)"
    )


def ranks_of(group: Any, distributed: bool | None, timeout: float) -> PlanRanks | None:
    """The ranks that plan together; None: this process plans alone."""
    if not timeout > 0:
        raise InvalidError(f"timeout={timeout}: must be greater than 0 seconds")
    found = None if distributed is False else job()
    if found is None:
        if distributed:
            raise InvalidError("distributed=True: call torch.distributed.init_process_group first")
        return None
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    if found[1] not in members:
        raise InvalidError(f"rank {found[1]} is not in the group {members}")
    if len(members) == 1:
        return None
    name = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
    prefix = f"ligament/pipe/{name}/{next(_calls[name])}"
    return PlanRanks(timeout, (found[0], members.index(found[1]), len(members)), prefix)


def agree(
    ranks: PlanRanks,
    trace: Callable[[], Trace],
    describe: Callable[[Trace], dict[str, Any]],
    decide: Callable[[Trace], Plan],
    adopt: Callable[[dict[str, Any], Trace], Plan],
) -> Plan:
    """The plan that `decide` makes on the first rank, on the trace of this one. The result of
    `describe` must be equal on all ranks."""
    ranks.arrive(None)
    try:
        traced = trace()
        ranks.tell(0, "have", {"call": describe(traced)})
    except BaseException as error:
        ranks.tell(0, "have", packed(error))
        if ranks.rank == 0:
            ranks.put("plan", packed(error))
        raise
    if ranks.rank == 0:
        return _lead(ranks, traced, decide)
    end = time.monotonic() + ranks.timeout + _MEASURE_S
    message = ranks.get("plan", 0, "send its plan", end)
    if "error" in message:
        raise raised(message)
    return adopt(message, traced)


def _lead(ranks: PlanRanks, traced: Trace, decide: Callable[[Trace], Plan]) -> Plan:
    """At the first rank. It measures when all others have traced and wait: their work would disturb
    the measurement."""
    try:
        _compare([one["call"] for one in ranks.gather(0, "have", "call pipe_model")])
        made = decide(traced)
        ranks.put("plan", made.as_json())
    except BaseException as error:
        ranks.put("plan", packed(error))
        raise
    ranks.forget(0, "have")
    return made


def _compare(calls: list[dict[str, Any]]) -> None:
    for rank, call in enumerate(calls):
        for key, value in calls[0].items():
            if call[key] == value:
                continue
            if key == "model":
                raise MismatchError(
                    f"rank {rank} plans a different model than rank 0: operations, shapes, "
                    "names or mode differ (use distributed=False to plan on each rank alone)"
                )
            raise MismatchError(
                f"all ranks must pass the same {key}: {value!r} on rank 0, {call[key]!r} on rank "
                f"{rank}"
            )
