"""Whether a repeat can be used, by what its ranks told: functions of their events."""

from itertools import zip_longest

from perfkit.measuring.driver.failures import EndedRun, finished
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.store import Events
from perfkit.measuring.results.summarize import told_by

Tellings = dict[int, Told]
"""What the ranks have told that called the timer."""


def told_failure(run: EndedRun, repeat: int, first_told: Told | None) -> Failure | None:
    """Return why a repeat can't be used for what its ranks told; None if there is no reason.
    `first_told`: what a script told in the first repeat, None in that one."""
    told = {}
    for rank, events in enumerate(run.events):
        telling = told_by(events)
        if telling:
            told[rank] = telling
    failure = _timer_on_some_ranks(run, told)
    failure = failure or _different_on_ranks(run, told) or _paused_on_some_ranks(run)
    if failure or first_told is None:
        return failure
    return _different_in_repeat(repeat, first_told, run, told)


def _timer_on_some_ranks(run: EndedRun, told: Tellings) -> Failure | None:
    """Return the failure of ranks that never called the timer, while others did so up to the
    end, or they themselves ended without it."""
    others = [rank for rank in range(len(run.events)) if rank not in told]
    if not told or not others:
        return None
    ended_without = any(report.code == "timer_unused" for report in run.reports())
    if not ended_without and not any(finished(run.events[rank]) for rank in told):
        return None
    callers = ", ".join(map(str, told))
    without = ", ".join(map(str, others))
    reason = (
        f"ranks that called timer.step: {callers}; that did not: {without}; every rank must "
        "call it"
    )
    return run.failure("timer_on_some_ranks", reason, others[0])


def _different_on_ranks(run: EndedRun, told: Tellings) -> Failure | None:
    """Return the first difference between what rank 0 and another rank told the timer."""
    for rank, telling in told.items():
        name = _first_difference(told.get(0), telling)
        if name:
            here, there = getattr(telling, name), getattr(told[0], name)
            reason = (
                f"the script told the timer {name} = {here!r} on {run.name(rank)}, {there!r} "
                "on rank 0; every rank must tell the same"
            )
            return run.failure("told_differs", reason, rank)
    return None


def _paused_on_some_ranks(run: EndedRun) -> Failure | None:
    """Return the first difference between the pauses of rank 0 and of another rank, if all have
    finished: a rank that did not pause waited for the others in its window."""
    if not all(finished(events) for events in run.events):
        return None
    first = _paused_after(run.events[0])
    for rank, events in enumerate(run.events):
        for steps in zip_longest(first, _paused_after(events)):
            if steps[0] != steps[1]:
                step = min(step for step in steps if step is not None)
                reason = (
                    f"ranks 0 and {rank} did not both pause the timer after step {step}, so "
                    "that one waited for the other within its window; every rank must call "
                    "timer.pause"
                )
                return run.failure("paused_on_some_ranks", reason, rank)
    return None


def _paused_after(events: Events) -> list[int]:
    """Return the step after which each pause began."""
    return [event["step"] for event in events if event["event"] == "pause"]


def _different_in_repeat(
    repeat: int, first_repeat: Told, run: EndedRun, told: Tellings
) -> Failure | None:
    """Return the first difference between what rank 0 told the timer in the first repeat and in
    this one."""
    name = _first_difference(first_repeat, told.get(0))
    if name is None:
        return None
    here, there = getattr(told[0], name), getattr(first_repeat, name)
    reason = (
        f"the training told {name} = {here!r} in repeat {repeat}, {there!r} in the first one; "
        "that is other work: give it another label (-p label NAME), or make it do the same in "
        "every run"
    )
    return run.failure("told_differs", reason, 0)


def _first_difference(first: Told | None, other: Told | None) -> str | None:
    """Return the name of the first field that differs; None also if one told nothing."""
    if first is None or other is None:
        return None
    return first.difference_from(other)
