"""Which repeats of a measurement something else on the machine disturbed."""

from typing import Literal, NamedTuple

from perfkit.results.schema import Result

OTHER_LOAD_SHARE = 0.1
"""A repeat is disturbed if other processes were busy on more of the usable cores than this."""
STEAL_SHARE = 0.02
"""Or if the hypervisor withheld more of the cores' time than this."""
PROTECTING = {"thermal", "hardware_slowdown", "software_thermal", "hardware_thermal"}
PROTECTING |= {"power_brake"}
"""Or if clocks were lowered for one of these reasons. A GPU at its power cap, or whose owner
has set its clocks, is in its usual state."""


class Disturbance(NamedTuple):
    """One way in which a repeat was disturbed: `value` over `limit`, in cores for `other_load`,
    as a share for `steal_time`, in samples for `throttled`, which has `device` and `reason`."""

    repeat: int
    what: Literal["other_load", "steal_time", "throttled"]
    value: float
    limit: float
    device: str = ""
    reason: str = ""


def disturbances(result: Result) -> list[Disturbance]:
    """What disturbed the complete repeats, as far as the machine tells."""
    found = []
    for repeat in result.complete_repeats:
        seen, index = repeat.telemetry, repeat.index
        if not seen:
            continue
        limit = OTHER_LOAD_SHARE * seen.cores
        other, stolen = seen.other_load_cores or 0.0, seen.steal_share or 0.0
        if other > limit:
            found.append(Disturbance(index, "other_load", other, limit))
        if stolen > STEAL_SHARE:
            found.append(Disturbance(index, "steal_time", stolen, STEAL_SHARE))
        found += [
            Disturbance(index, "throttled", count, 0, device, reason)
            for device, reasons in seen.throttled.items()
            for reason, count in reasons.items()
            if reason in PROTECTING
        ]
    return found
