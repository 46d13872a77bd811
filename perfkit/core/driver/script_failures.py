"""Why a script's repeat failed, or is not what was asked for: pure functions of its events."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from perfkit.core.driver.failures import finished
from perfkit.core.results.failures import (
    ConfigMismatch,
    Failure,
    PausedOnSomeRanks,
    TimerOnSomeRanks,
    TimerUnused,
    ToldDiffers,
)
from perfkit.core.results.store import Events
from perfkit.core.results.summarize import told_by
from perfkit.core.results.told import Told
from perfkit.core.script_config import ScriptConfig

MAY_DIFFER = ("device_name",)
"""What ranks may tell differently."""
TIMER_UNUSED = "timer_unused"


class ScriptRun(NamedTuple):
    """The ranks of a script's repeat, by their numbers: their events, and the names of their
    nodes (None with a single node)."""

    events: Sequence[Events]
    nodes: Sequence[str | None]

    def told(self) -> dict[int, Told]:
        """Return what the ranks have told that called the timer."""
        tellings = {}
        for rank, events in enumerate(self.events):
            telling = told_by(events)
            if telling is not None:
                tellings[rank] = telling
        return tellings

    def reported(self, rank: int) -> dict[str, Any] | None:
        """Return the failure that a rank has reported, if it did."""
        for event in self.events[rank]:
            if event["event"] == "failure":
                return event
        return None


def wrong_device(device: str, run: ScriptRun) -> ConfigMismatch | None:
    """Return the failure of a rank that trained on another type of device than `device`."""
    for rank, telling in run.told().items():
        used = telling.device
        if used != device:
            detail = (
                f"device={device} was requested, but the script trained on {used}; let it "
                f"use {device}, or ask for the other: -p device {used}"
            )
            return ConfigMismatch(rank=rank, node=run.nodes[rank], detail=detail)
    return None


def timer_on_some_ranks(run: ScriptRun) -> TimerOnSomeRanks | None:
    """Return the failure of ranks that never called the timer, while others did so up to the
    end, or they themselves ended without it."""
    told = run.told()
    others = [rank for rank in range(len(run.events)) if rank not in told]
    if not told or not others:
        return None
    detail = None
    some_finished = any(finished(run.events[rank]) for rank in told)
    others_ended = False
    for rank in others:
        report = run.reported(rank)
        if report and report["code"] == TIMER_UNUSED:
            others_ended = True
        elif report and detail is None:
            detail = f"rank {rank}: {report['params'].get('detail')}"
    if not some_finished and not others_ended:
        return None
    return TimerOnSomeRanks(ranks=sorted(told), others=others, detail=detail)


def timer_never_called(seconds: int, run: ScriptRun) -> TimerUnused | None:
    """Return the failure of a script that ran for over `seconds`, the time limit, if no rank
    has called the timer."""
    return None if run.told() else TimerUnused(seconds=seconds)


def different_on_ranks(run: ScriptRun) -> ToldDiffers | None:
    """Return the first difference between what rank 0 and another rank told the timer."""
    told = run.told()
    first = told.get(0)
    if first is None:
        return None
    for rank, telling in told.items():
        name = _first_difference(first, telling)
        if name:
            return ToldDiffers(
                name=name,
                here=getattr(telling, name),
                there=getattr(first, name),
                rank=rank,
                node=run.nodes[rank],
            )
    return None


def paused_on_some_ranks(run: ScriptRun) -> PausedOnSomeRanks | None:
    """Return the first difference between the pauses of rank 0 and of another rank, if all have
    finished: a rank that did not pause waited for the others in its window."""
    if not all(finished(events) for events in run.events):
        return None
    first = _paused_after(run.events[0])
    for rank, events in enumerate(run.events):
        different = first ^ _paused_after(events)
        if different:
            step = min(different)[0]
            return PausedOnSomeRanks(rank=rank, step=step)
    return None


def _paused_after(events: Events) -> set[tuple[int, int]]:
    """Return the step after which a rank paused, and which pause after that step it was, of
    every pause."""
    count = Counter[int]()
    pauses = set()
    for event in events:
        if event["event"] == "pause":
            step = event["step"]
            count[step] += 1
            pauses.add((step, count[step]))
    return pauses


def different_in_repeat(repeat: int, first_repeat: Told, run: ScriptRun) -> ToldDiffers | None:
    """Return the first difference between what rank 0 told the timer in the first repeat and in
    this one."""
    telling = run.told().get(0)
    if telling is None:
        return None
    name = _first_difference(first_repeat, telling)
    if name is None:
        return None
    return ToldDiffers(
        name=name,
        here=getattr(telling, name),
        there=getattr(first_repeat, name),
        rank=0,
        node=run.nodes[0],
        repeat=repeat,
    )


def _first_difference(first: Told, other: Told) -> str | None:
    """Return the name of the first field that differs."""
    for name in Told.model_fields:
        if name not in MAY_DIFFER and getattr(first, name) != getattr(other, name):
            return name
    return None


def script_failure(
    config: ScriptConfig,
    run: ScriptRun,
    repeat: int,
    first_told: Told | None,
    *,
    was_too_slow: bool,
) -> Failure | None:
    """Return why a script's repeat can't be used for reasons of the script; None if there is no
    such reason. `first_told`: what it told in the first repeat, None in that one.
    `was_too_slow`: whether it took longer than `timeout`."""
    failure: Failure | None = wrong_device(config.device, run) or timer_on_some_ranks(run)
    if was_too_slow and failure is None:
        failure = timer_never_called(config.timeout, run)
    failure = failure or different_on_ranks(run) or paused_on_some_ranks(run)
    if failure or first_told is None:
        return failure
    return different_in_repeat(repeat, first_told, run)
