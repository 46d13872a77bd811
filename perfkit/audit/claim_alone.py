"""A claim without a log: what it means for each device, and whether that is possible.

A token's operations are counted as in the answer of an audit; a claim is impossible if they
exceed the dense peak, even with causal attention. One that doesn't say whether it is of one
device or of all is read both ways.
"""

from collections.abc import Mapping
from typing import Literal

from perfkit.audit.answer import Speed, log_datasheet, model_speed
from perfkit.audit.claim import ClaimedNumber
from perfkit.audit.config_facts import number_in, with_stated_facts
from perfkit.audit.log_numbers import PERCENT
from perfkit.audit.quantity import read_claim
from perfkit.audit.refusals import UnitMissing
from perfkit.audit.statements import FactValue, SourcedFact
from perfkit.core.format import number, percent
from perfkit.core.request import RequestError
from perfkit.core.results.base import Stored
from perfkit.core.units import TERA

JUDGED = ("tokens/s", "samples/s", "TFLOP/s", "MFU")


class Reading(Stored):
    """What a claim means for each device; None: unknown."""

    of: Literal["all", "device"]
    """whether it is read as the number of all devices or of one"""
    tflops: float | None = None
    """model's TFLOP/s"""
    mfu: float | None = None
    """share of the dense peak"""
    is_possible: bool = True


class ClaimAlone(Stored):
    """A claim without a log."""

    text: str
    readings: list[Reading]
    formula: str
    """operations of training a token; empty if they don't count"""
    peak: str
    """dense peak of a device with its source; empty if unknown"""
    is_impossible: bool
    """whether every reading is impossible"""

    def lines(self) -> list[str]:
        """Return the verdict, and what it rests on."""
        verdict = "impossible" if self.is_impossible else "possible"
        if all(reading.mfu is None for reading in self.readings):
            verdict = (
                "not judged; give what lacks by -p: gpu_model or peak_tflops, parameters, "
            )
            verdict += "sequence_length (for samples), devices"
        lines = [f"{self.text}: {verdict}."]
        for reading in self.readings:
            scope = "of one device" if reading.of == "device" else "of all devices"
            parts = [f"{number(reading.tflops)} TFLOP/s"] if reading.tflops else []
            parts += [f"MFU {percent(reading.mfu)}"] if reading.mfu else []
            if not reading.is_possible:
                parts.append("impossible")
            if parts:
                lines.append(f"as that {scope}: {', '.join(parts)} per device")
        return lines + [each for each in (self.formula, self.peak) if each]


def check_claim_alone(text: str, stated: Mapping[str, FactValue]) -> ClaimAlone:
    """Check a claim by what the command line states. Raises RequestError."""
    claimed = read_claim(text)
    if claimed is None or claimed.quantity not in JUDGED:
        raise RequestError([UnitMissing(parameter="--claim", value=text)])
    facts = with_stated_facts({}, stated).by_name
    readings = []
    if claimed.of != "device" and claimed.quantity != "MFU" and number_in(facts, "ranks"):
        readings.append(_reading(claimed, "all", number_in(facts, "ranks"), facts))
    if claimed.of != "all":
        readings.append(_reading(claimed, "device", 1, facts))
    model = model_speed(Speed(of_all=None, per_device=1.0), facts)
    sheet = log_datasheet(facts)
    peak = (
        sheet
        and f"peak: {sheet.flops_per_second / TERA:g} TFLOP/s ({sheet.gpu}, {sheet.precision}; "
    )
    return ClaimAlone(
        text=claimed.text,
        readings=readings,
        formula=f"{model.formula} FLOPs of a token" if model else "",
        peak=f"{peak}{sheet.source})" if sheet else "",
        is_impossible=bool(readings) and not any(each.is_possible for each in readings),
    )


def _reading(
    claimed: ClaimedNumber,
    of: Literal["all", "device"],
    devices: int,
    facts: Mapping[str, SourcedFact],
) -> Reading:
    """Read a claim as the number of so many devices."""
    value = claimed.value / devices
    sheet = log_datasheet(facts)
    peak = sheet.flops_per_second / TERA if sheet else None
    if claimed.quantity == "MFU":
        mfu = value / PERCENT
        return Reading(of=of, tflops=peak and mfu * peak, mfu=mfu, is_possible=mfu <= 1)
    if claimed.quantity == "TFLOP/s":
        return Reading(
            of=of,
            tflops=value,
            mfu=peak and value / peak,
            is_possible=not peak or value <= peak,
        )
    if claimed.quantity == "samples/s":
        value *= number_in(facts, "sequence_length")
    model = model_speed(Speed(of_all=None, per_device=value), facts)
    if not model:
        return Reading(of=of)
    return Reading(
        of=of, tflops=model.tflops_per_device, mfu=model.mfu, is_possible=model.is_possible
    )
