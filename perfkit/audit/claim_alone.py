"""A claim without a log: what it means for each device, and whether that is possible.

A token's operations are counted as in the answer of an audit; a claim is impossible if they
exceed the dense peak, even with causal attention. One that doesn't say whether it is of one
device or of all is read both ways.
"""

from collections.abc import Mapping
from typing import Literal

from perfkit.audit.answer import Speed, log_datasheet, model_speed, parameters_of_token
from perfkit.audit.claim import ClaimedNumber
from perfkit.audit.config_facts import number_in, with_stated_facts
from perfkit.audit.quantity import read_claim
from perfkit.audit.statements import FactValue, SourcedFact
from perfkit.measuring.request import RequestError
from perfkit.measuring.results.base import Stored
from perfkit.measuring.units import PERCENT, TERA

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
    """formula of the FLOPs of training a token; empty if they don't count"""
    peak: str
    """dense peak of a device with its source; empty if unknown"""
    needs: list[str]
    """options of the command line without which a claim in this quantity can't be judged"""
    is_impossible: bool
    """whether every reading is impossible"""


def check_claim_alone(text: str, stated: Mapping[str, FactValue]) -> ClaimAlone:
    """Check a claim by what the command line states. Raises RequestError."""
    claimed = read_claim(text)
    if claimed is None or claimed.quantity not in JUDGED:
        problem = f"--claim: {text} needs a log or a unit, as in '12,810 tokens/s'"
        raise RequestError([problem])
    facts = with_stated_facts({}, stated).by_name
    readings = []
    if claimed.of != "device" and claimed.quantity != "MFU" and number_in(facts, "ranks"):
        readings.append(_reading(claimed, "all", number_in(facts, "ranks"), facts))
    if claimed.of != "all":
        readings.append(_reading(claimed, "device", 1, facts))
    model = model_speed(Speed(of_all=None, per_device=1.0), facts)
    sheet = log_datasheet(facts)
    peak = ""
    if sheet:
        tflops = f"{sheet.flops_per_second / TERA:g} TFLOP/s"
        peak = f"{tflops} ({sheet.gpu}, {sheet.precision}; {sheet.source})"
    counts_samples = claimed.quantity in ("tokens/s", "samples/s")
    lacks = {
        "-p gpu_model NAME": not sheet and claimed.quantity != "MFU",
        "-p parameters N": counts_samples and not parameters_of_token(facts),
        "-p sequence_length N": claimed.quantity == "samples/s"
        and not number_in(facts, "sequence_length"),
        "-p devices N": not readings,
    }
    return ClaimAlone(
        text=claimed.text,
        readings=readings,
        formula=model.formula if model else "",
        peak=peak,
        needs=[option for option, is_lacking in lacks.items() if is_lacking],
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
