"""What the machine did in the window of a repeat: pure functions on what `driver.lookout` wrote
down."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from perfkit.results.schema import Conditions

Look = dict[str, Any]
"""A `look` event of a conditions file."""


def summarize(
    events: Sequence[dict[str, Any]], began: float, seconds: float, samples: Sequence[int]
) -> Conditions | None:
    """The conditions in the window of `seconds` that began when the monotonic clock read
    `began`; None unless the measurement's processes were seen both before and after it.

    `events` are the lines of a conditions file, `samples` what each rank has trained on in the
    window. A counter's value where the window begins or ends lies on the straight line between
    the looks around that moment.
    """
    if not events:
        return None
    begin, looks = events[0], [event for event in events if event["event"] == "look"]
    ended = began + seconds
    within = [look for look in looks if began <= look["at"] <= ended]
    before = [look for look in looks if look["at"] < began][-1:]
    after = [look for look in looks if look["at"] > ended][:1]
    around = [*before, *within, *after]

    def increase(readings: list[tuple[float, float]]) -> float | None:
        first, last = _at(began, readings), _at(ended, readings)
        return None if first is None or last is None else last - first

    def seconds_of(counter: str) -> float | None:
        return increase([(look["at"], look[counter]) for look in around if counter in look])

    own = seconds_of("own_seconds")
    if own is None:
        return None
    busy, stolen = seconds_of("busy_seconds"), seconds_of("stolen_seconds")
    missing = dict(begin["missing"])
    if stolen is not None and not around[-1]["stolen_seconds"]:
        # What hides it from its guests looks the same as no hypervisor.
        stolen, missing["stolen"] = None, "none was counted since the machine started"
    wraps = begin["energy_wraps_joules"]
    energy = {
        device: joules
        for device, readings in _by_device("energy_joules", around).items()
        if (joules := increase(_unwrapped(readings, wraps.get(device)))) is not None
    }
    seen = within or around
    return Conditions(
        looks=len(within),
        cores=begin["cores"],
        own_cores=own / seconds,
        # Two ways to count: where there is no other load, the difference may be below zero.
        other_load_cores=None if busy is None else max(0.0, busy - own) / seconds,
        stolen_share=None if stolen is None else stolen / seconds / begin["cores"],
        clock_mhz={
            device: (min(values), max(values))
            for device, values in _values("clock_mhz", seen).items()
        },
        temperature_celsius={
            device: max(values)
            for device, values in _values("temperature_celsius", seen).items()
        },
        throttled=_throttled(around, seen),
        energy_joules=energy,
        energy_joules_per_sample=_per_sample(energy, begin, samples),
        missing=missing,
    )


def _at(moment: float, readings: list[tuple[float, float]]) -> float | None:
    """A counter's value at `moment`, between two of its readings; None outside of them."""
    for (earlier, low), (later, high) in pairwise(readings):
        if earlier <= moment <= later:
            return low + (high - low) * (moment - earlier) / (later - earlier)
    return None


def _by_device(what: str, looks: list[Look]) -> dict[str, list[tuple[float, Any]]]:
    """Device -> (moment, value) of each look that has `what` of it."""
    readings: dict[str, list[tuple[float, Any]]] = {}
    for look in looks:
        for device, value in look.get(what, {}).items():
            readings.setdefault(device, []).append((look["at"], value))
    return readings


def _values(what: str, looks: list[Look]) -> dict[str, list[Any]]:
    found = _by_device(what, looks)
    return {device: [value for _at, value in readings] for device, readings in found.items()}


def _unwrapped(
    readings: list[tuple[float, float]], wrap: float | None
) -> list[tuple[float, float]]:
    """Readings of a counter that begins at 0 again after `wrap`, as if it went on. None are
    left of one that fell without: its driver was loaded anew."""
    passed, unwrapped = 0.0, readings[:1]
    for (_, low), (moment, high) in pairwise(readings):
        if high < low and wrap is None:
            return []
        passed += wrap or 0.0 if high < low else 0.0
        unwrapped.append((moment, high + passed))
    return unwrapped


def _throttled(around: list[Look], seen: list[Look]) -> dict[str, dict[str, int]]:
    """Device -> reason -> looks that showed it: GPUs name it, a CPU's count has risen."""
    throttled = {
        device: dict(Counter(reason for reasons in values for reason in reasons))
        for device, values in _values("throttled", seen).items()
    }
    for device, counts in _values("throttle_count", around).items():
        rises = sum(later > earlier for earlier, later in pairwise(counts))
        throttled[device] = {"thermal": rises} if rises else {}
    return throttled


def _per_sample(
    energy: dict[str, float], begin: dict[str, Any], samples: Sequence[int]
) -> float | None:
    """Joules of what computes: of the ranks' GPUs, or else of all packages and memory."""
    gpus = {device: joules for device, joules in energy.items() if device.startswith("gpu")}
    if begin["device"] == "gpu" and len(gpus) < begin["ranks"]:
        return None
    counted = gpus if begin["device"] == "gpu" else energy
    return sum(counted.values()) / sum(samples[: begin["ranks"]]) if counted else None
