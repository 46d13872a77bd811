"""A claim without a log: what it means for each device, and whether that is possible.

A token's operations are counted as in the answer of an audit: 6 N, and attention if its sizes
are stated. A claim is impossible if they exceed the dense peak, even with causal attention. One
that doesn't say whether it is of one device or of all is read both ways.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from perfkit.audit.answer import log_datasheet
from perfkit.audit.claim import ClaimedNumber, ClaimedQuantity
from perfkit.audit.config_facts import with_stated_facts
from perfkit.audit.log_numbers import BY_FLOPS, PERCENT
from perfkit.audit.quantity import read_claim
from perfkit.audit.refusals import UnitMissing
from perfkit.audit.statements import FactValue
from perfkit.core.format import number, percent
from perfkit.core.models.flops import flops_per_token
from perfkit.core.request import RequestError
from perfkit.core.results.base import Stored
from perfkit.core.units import TERA

Scope = Literal["all", "device"]
STEPS = ("s/step", "steps/s")


class Reading(Stored):
    """What a claim means for each device; None: unknown."""

    of: Scope
    """whether it is read as the number of all devices or of one"""
    tokens_per_second: float | None
    tflops: float | None
    """model's TFLOP/s"""
    mfu: float
    """share of the dense peak"""
    causal_mfu: float
    """the same with causal attention"""

    @property
    def is_impossible(self) -> bool:
        return self.causal_mfu > 1


class ClaimAlone(Stored):
    """A claim without a log."""

    text: str
    quantity: ClaimedQuantity
    devices: int | None
    """all devices"""
    formula: str
    """operations of training a token; empty if the parameters are not stated"""
    peak_tflops: float | None
    """dense peak of a device"""
    peak_source: str
    readings: list[Reading]
    needs: list[str]
    """what has to be stated so that the claim can be judged"""
    is_impossible: bool
    """whether every reading is impossible"""

    def lines(self) -> list[str]:
        """Return the verdict, what each reading means, and what this rests on."""
        lines = [f"{self.text}: {self._verdict()}."]
        lines += [f"{self._scope(each)}: {_meaning(each)}" for each in self.readings]
        if not self.readings:
            return lines
        if self.formula:
            lines.append(f"A token of N parameters, all used, takes {self.formula} FLOPs.")
        if self.peak_tflops:
            lines.append(f"Dense peak: {self.peak_tflops:g} TFLOP/s ({self.peak_source}).")
        return lines

    def _verdict(self) -> str:
        possible = [each for each in self.readings if not each.is_impossible]
        if self.is_impossible:
            return "impossible"
        if self.needs:
            return f"not judged, as it needs {', '.join(self.needs)}"
        if len(possible) < len(self.readings):
            return f"possible only as that {self._scope(possible[0])}"
        return "possible"

    def _scope(self, reading: Reading) -> str:
        if reading.of == "device":
            return "of one device"
        return f"of all {self.devices} devices"


class Work(NamedTuple):
    """What the command line states, 0 if unknown: devices, samples of an update on all of them,
    tokens of a sample, TFLOP of a token with attention in full and causally, and the dense peak
    of a device in TFLOP/s."""

    devices: int
    batch: int
    length: int
    full: float
    causal: float
    peak: float


def check_claim_alone(text: str, stated: Mapping[str, FactValue]) -> ClaimAlone:
    """Check a claim by what the command line states. Raises RequestError."""
    claimed = read_claim(text)
    if claimed is None or claimed.quantity is None:
        raise RequestError([UnitMissing(parameter="--claim", value=text)])
    counts = {name: value for name, value in stated.items() if isinstance(value, int)}
    names = ("parameters", "layers", "hidden_size", "sequence_length")
    sizes = [counts.get(name, 0) for name in names]
    full, causal = flops_per_token(*sizes), flops_per_token(*sizes, causal=True)
    sheet = log_datasheet(with_stated_facts({}, stated).by_name)
    devices = counts.get("ranks", 0)
    work = Work(
        devices=devices,
        batch=counts.get("global_batch_size", 0) or counts.get("batch_size", 0) * devices,
        length=counts.get("sequence_length", 0),
        full=full.flops / TERA if counts.get("parameters") else 0.0,
        causal=causal.flops / TERA,
        peak=sheet.flops_per_second / TERA if sheet else 0.0,
    )
    needs = _needs(claimed, work, "peak_tflops N" if "gpu" in stated else "gpu_model NAME")
    readings = [] if needs else [_reading(claimed, of, work) for of in _scopes(claimed, work)]
    return ClaimAlone(
        text=claimed.text,
        quantity=claimed.quantity,
        devices=devices or None,
        formula=full.formula if work.full else "",
        peak_tflops=work.peak or None,
        peak_source=f"{sheet.gpu}, {sheet.precision}: {sheet.source}" if sheet else "",
        readings=readings,
        needs=needs,
        is_impossible=bool(readings) and all(each.is_impossible for each in readings),
    )


def _needs(claimed: ClaimedNumber, work: Work, peak: str) -> list[str]:
    """Return what has to be stated, and `peak` for an unknown one; a MFU is judged by
    itself."""
    quantity = claimed.quantity
    if quantity in ("MFU", "minutes"):
        return ["a log"] if quantity == "minutes" else []
    counts_samples = quantity in ("samples/s", *STEPS)
    is_of_all = quantity in STEPS or claimed.of == "all"
    is_known = {
        f"-p {peak}": work.peak,
        "-p parameters N": work.full or quantity == "TFLOP/s",
        "-p sequence_length N (tokens of a sample)": work.length or not counts_samples,
        "-p global_batch_size N": work.batch or quantity not in STEPS,
        "-p devices N": work.devices or not is_of_all,
    }
    return [option for option, known in is_known.items() if not known]


def _scopes(claimed: ClaimedNumber, work: Work) -> list[Scope]:
    """Return how a claim may be read: as it says, or else as the number of all and of one."""
    if claimed.quantity in STEPS or claimed.of == "all":
        return ["all"]
    is_of_one = claimed.of or claimed.quantity == "MFU" or work.devices < 2
    return ["device"] if is_of_one else ["all", "device"]


def _reading(claimed: ClaimedNumber, of: Scope, work: Work) -> Reading:
    """Read a claim as the number of all devices or of one."""
    value, devices = claimed.value, work.devices if of == "all" else 1
    tokens_of_value = {
        "tokens/s": value,
        "samples/s": value * work.length,
        "steps/s": work.batch * work.length * value,
        "s/step": work.batch * work.length / value,
    }
    if claimed.quantity in BY_FLOPS:
        tflops = value / devices
        if claimed.quantity == "MFU":
            tflops = value / PERCENT * work.peak
        tokens = tflops / work.full if work.full else None
    else:
        tokens = tokens_of_value[str(claimed.quantity)] / devices
        tflops = tokens * work.full
    mfu = value / PERCENT if claimed.quantity == "MFU" else tflops / work.peak
    is_causal = claimed.quantity not in BY_FLOPS
    return Reading(
        of=of,
        tokens_per_second=tokens,
        tflops=tflops or None,
        mfu=mfu,
        causal_mfu=mfu * work.causal / work.full if is_causal else mfu,
    )


def _meaning(reading: Reading) -> str:
    parts = []
    if reading.tokens_per_second:
        parts.append(f"{number(reading.tokens_per_second)} tokens/s")
    if reading.tflops:
        parts.append(f"{number(reading.tflops)} TFLOP/s")
    mfu = f"MFU {percent(reading.mfu)}"
    if reading.mfu > 1 and not reading.is_impossible:
        mfu += f" ({percent(reading.causal_mfu)} with causal attention)"
    return f"{', '.join([*parts, mfu])} per device"
