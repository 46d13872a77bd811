"""The conditions of a measurement's repeats as a table: a column for what its machine tells."""

from collections.abc import Callable

from perfkit.results.schema import Conditions
from perfkit.words.language import gettext as _
from perfkit.words.wording import number

Row = dict[str, str]
"""What a machine tells of one repeat: heading of the column -> cell."""


def row(seen: Conditions) -> Row:
    cells = {
        _("Looks"): str(seen.looks),
        _("Measurement (cores)"): f"{seen.own_cores:.2f}",
        _("Other load (cores)"): _unless_none(seen.other_load_cores, "{:.2f}".format),
        _("Stolen by the hypervisor"): _unless_none(
            seen.stolen_share, lambda share: f"{share * 100:.1f} %"
        ),
        _("CPU clock (MHz)"): _clock(seen, "cpu"),
        _("GPU clock (MHz)"): _clock(seen, "gpu"),
        _("CPU, highest (°C)"): _highest(seen, "cpu"),
        _("GPU, highest (°C)"): _highest(seen, "gpu"),
        _("Clocks lowered"): _throttled(seen),
        _("Energy per sample (J)"): _unless_none(seen.energy_joules_per_sample, number),
    }
    return {heading: cell for heading, cell in cells.items() if cell is not None}


def _unless_none(value: float | None, shown: Callable[[float], str]) -> str | None:
    return None if value is None else shown(value)


def _clock(seen: Conditions, kind: str) -> str | None:
    ends = [ends for device, ends in seen.clock_mhz.items() if device.startswith(kind)]
    if not ends:
        return None
    lowest, highest = min(low for low, _high in ends), max(high for _low, high in ends)
    return f"{lowest:.0f} – {highest:.0f}"


def _highest(seen: Conditions, kind: str) -> str | None:
    found = [c for device, c in seen.temperature_celsius.items() if device.startswith(kind)]
    return f"{max(found):.0f}" if found else None


def _throttled(seen: Conditions) -> str | None:
    """Each device with its reasons, and in how many looks each was seen."""
    told = [
        f"{device} {reason} ({count})"
        for device, reasons in seen.throttled.items()
        for reason, count in reasons.items()
    ]
    return ", ".join(told) or (_("not seen") if seen.throttled else None)
