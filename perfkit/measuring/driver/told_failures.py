"""Whether a repeat is what was asked for, by what its ranks told: functions of their events."""

from collections import Counter

from perfkit.measuring.config import Config
from perfkit.measuring.driver.failures import EndedRun, finished
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.store import Events
from perfkit.measuring.results.summarize import told_by

MAY_DIFFER = ("device_name",)
"""What ranks may tell differently."""


def unlike_the_request(
    config: Config, run: EndedRun, repeat: int, first_told: Told | None
) -> Failure | None:
    """Return why a repeat can't be used for what its ranks told; None if there is no reason.
    `first_told`: what a script told in the first repeat, None in that one."""
    told = _told(run)
    failure = _wrong_device(config.device, run, told) or _timer_on_some_ranks(run, told)
    failure = failure or _different_on_ranks(run, told) or _paused_on_some_ranks(run)
    if failure or first_told is None:
        return failure
    return _different_in_repeat(repeat, first_told, run, told)


def _told(run: EndedRun) -> dict[int, Told]:
    """Return what the ranks have told that called the timer."""
    tellings = {}
    for rank, events in enumerate(run.events):
        telling = told_by(events)
        if telling is not None:
            tellings[rank] = telling
    return tellings


def _wrong_device(device: str, run: EndedRun, told: dict[int, Told]) -> Failure | None:
    """Return the failure of a rank that trained on another type of device than `device`."""
    for rank, telling in told.items():
        used = telling.device
        if used != device:
            reason = (
                f"{run.name(rank)}: device={device} was requested, but the script trained on "
                f"{used}; let it use {device}, or ask for the other: -p device {used}"
            )
            return run.failure("config_mismatch", reason, rank)
    return None


def _timer_on_some_ranks(run: EndedRun, told: dict[int, Told]) -> Failure | None:
    """Return the failure of ranks that never called the timer, while others did so up to the
    end, or they themselves ended without it."""
    others = [rank for rank in range(len(run.events)) if rank not in told]
    if not told or not others:
        return None
    errors = {report.rank: report for report in run.reports() if report.rank in others}
    unused = [rank for rank, report in errors.items() if report.code == "timer_unused"]
    if not unused and not any(finished(run.events[rank]) for rank in told):
        return None
    callers = ", ".join(map(str, sorted(told)))
    without = ", ".join(map(str, others))
    for rank, report in errors.items():
        if rank not in unused:
            without += f" (rank {rank}: {report.message})"
            break
    reason = (
        f"ranks that called timer.step: {callers}; that did not: {without}; every rank must "
        "call it"
    )
    return run.failure("timer_on_some_ranks", reason, others[0])


def _different_on_ranks(run: EndedRun, told: dict[int, Told]) -> Failure | None:
    """Return the first difference between what rank 0 and another rank told the timer."""
    first = told.get(0)
    if first is None:
        return None
    for rank, telling in told.items():
        name = _first_difference(first, telling)
        if name:
            here, there = getattr(telling, name), getattr(first, name)
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
        different = first ^ _paused_after(events)
        if different:
            step = min(different)[0]
            reason = (
                f"ranks 0 and {rank} did not both pause the timer after step {step}, so that "
                "one waited for the other within its window; every rank must call timer.pause"
            )
            return run.failure("paused_on_some_ranks", reason, rank)
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


def _different_in_repeat(
    repeat: int, first_repeat: Told, run: EndedRun, told: dict[int, Told]
) -> Failure | None:
    """Return the first difference between what rank 0 told the timer in the first repeat and in
    this one."""
    telling = told.get(0)
    name = _first_difference(first_repeat, telling) if telling else None
    if name is None:
        return None
    here, there = getattr(telling, name), getattr(first_repeat, name)
    reason = (
        f"the script told the timer {name} = {here!r} in repeat {repeat}, {there!r} in the "
        "first one; that is other work: give it another label (-p label NAME), or make the "
        "script do the same in every run"
    )
    return run.failure("told_differs", reason, 0)


def _first_difference(first: Told, other: Told) -> str | None:
    """Return the name of the first field that differs."""
    for name in Told.model_fields:
        if name not in MAY_DIFFER and getattr(first, name) != getattr(other, name):
            return name
    return None
