"""Quantities as people write them in a claim: 12,810 tokens/s, 21.9k tok/s/GPU, 45 % MFU.

A claim is a number and a unit. The unit is a word with what is counted (`tokens`, `TFLOP`,
`ms`), and the words by which it is divided (`s`, `GPU`, `step`) in any order, after / or `per`.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from perfkit.audit.figure import LEAST_RATE, MOST_RATE, Figure
from perfkit.audit.recompute import half_of
from perfkit.audit.statements import Basis, Conversion
from perfkit.core.results.base import Stored
from perfkit.core.units import TERA

Of = Literal["device", "all", ""]
"""Whether a quantity is that of one device or of all; empty if the claim does not say."""
ClaimedKind = Literal["tokens/s", "samples/s", "TFLOP/s", "MFU", "s/step", "steps/s", "minutes"]
"""What can be claimed, and its unit. MFU is in percent; minutes are those of a training."""

NUMBER = re.compile(
    r"(?P<digits>(?:\d{1,3}(?:[,_]\d{3}){1,9}|\d{1,20})(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)"
    r"\s{0,3}(?P<scale>[kmbg](?=\s|$))?",
    re.I,
)
"""A printed number, with commas or underscores only between thousands; 21.9k is 21,900."""
WORD = re.compile(r"[a-z]{1,20}|[%/]")
LONGEST = 80
"""Characters of a claim."""
SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "p": 1e15}
SECONDS: Mapping[str, float] = {
    "ms": 1e-3,
    "millisecond": 1e-3,
    "msec": 1e-3,
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "day": 86400,
}
TOKENS = {"token", "tok"}
SAMPLES = {"sample", "image", "img", "im", "sequence", "seq", "sentence", "example", "frame"}
NO_TEXT = {"image", "img", "im", "frame"}
"""Samples that have no tokens."""
STEPS = {"step", "it", "iter", "iteration", "update"}
DEVICES = {"gpu", "device", "chip", "card", "rank", "accelerator", "gcd", "npu", "tpu"}
OF_DEVICE = DEVICES | {"each"}
OF_ALL = {"total", "overall", "global", "aggregate", "all"}
FLOPS = {"flop", "flops"}
SHORT = {"tps": ("token", "s"), "tgs": ("token", "gpu", "s"), "fps": ("frame", "s")}
"""Abbreviations: what is counted, and by what it is divided."""
ALLOWED = [
    "tokens/s",
    "tokens/s/GPU",
    "samples/s",
    "images/s",
    "TFLOP/s/GPU",
    "PFLOP/s",
    "% MFU",
    "s/step",
    "ms/step",
    "steps/s",
    "minutes",
]
"""Units that a refusal names."""


class LogQuantity(Stored):
    """A number of a log in the claimed quantity, in its unit."""

    value: float
    """the number"""
    rounding: float
    """effect of the last printed digit, as a share"""
    of: Of
    """whether it is of one device or of all; empty if the quantity is of neither"""
    figure: Figure | None = None
    """the throughput that it is computed from"""
    basis: Basis | None = None
    """what it is, if it is computed from no throughput"""
    conversion: Conversion | None = None
    """how the throughput becomes the quantity; None if it is the quantity"""


class Claimed(NamedTuple):
    """A claimed quantity. `value` is in the unit of `kind`, `half` half a unit of its last
    digit in that unit."""

    text: str
    kind: ClaimedKind
    value: float
    half: float
    of: Of


class Unit(NamedTuple):
    """What a unit means: its number times `factor` is in the unit of `kind`."""

    kind: ClaimedKind
    factor: float
    of: Of


def claimed_quantity(text: str) -> Claimed | None:
    """Return the quantity that a claim states; None if it has no number, no unit, a unit that
    is not known, or a size that no training has. A share may follow its unit: MFU 45 %."""
    claim = text.strip()
    if len(claim) > LONGEST:
        return None
    number = NUMBER.search(claim)
    if not number or not _stands_alone(claim, number):
        return None
    before, after = claim[: number.start()], claim[number.end() :]
    unit = _unit(before, after)
    if unit is None:
        return None
    scale = unit.factor * SCALES.get((number["scale"] or "").lower(), 1.0)
    digits = re.sub("[,_]", "", number["digits"])
    value = float(digits) * scale
    if not LEAST_RATE <= value <= MOST_RATE:
        return None
    if unit.kind == "MFU" and "%" not in claim and value > 100:
        # 45 MFU: as a share it would be 4,500 %.
        return None
    return Claimed(claim, unit.kind, value, half_of(digits) * scale, unit.of)


def counts_images(text: str) -> bool:
    """Return whether a claim counts samples that have no tokens, such as images."""
    words = [_singular(word) for word in WORD.findall(text.lower())]
    if "fps" in words:
        return True
    return any(_scaled(word)[1] in NO_TEXT for word in words)


def unit_text(kind: ClaimedKind | None, text: str) -> str:
    """Return the unit of numbers in the quantity of a claim with this text."""
    match kind:
        case "MFU":
            return "%"
        case "samples/s" if counts_images(text):
            return "images/s"
    return kind or ""


def _stands_alone(claim: str, number: re.Match[str]) -> bool:
    """Return whether a number is the only one of a claim, and no part of a word or a negative
    one."""
    before, after = claim[: number.start()], claim[number.end() :]
    is_part = re.search(r"[\w.,-]$", before) or re.match(r"[\d.,_-]", after)
    return not is_part and not re.search(r"\d", before + after)


def _unit(before: str, after: str) -> Unit | None:
    words = [_singular(word) for word in WORD.findall(after.lower().replace("per ", "/"))]
    leading = [_singular(word) for word in WORD.findall(before.lower())]
    unknown = re.sub(r"[a-z%/\s().:=~≈]", "", (before + after).lower())
    if unknown:
        return None
    if "mfu" in leading or "mfu" in words:
        return _utilization({*leading, *words})
    if leading:
        return None
    return _rate_or_time([word for word in words if word != "/"])


def _utilization(words: set[str]) -> Unit | None:
    """Return the unit of an MFU: a percentage or a share."""
    if words - {"mfu", "%", "of", "model"}:
        return None
    return Unit("MFU", 1.0 if "%" in words else 100.0, "")


def _rate_or_time(words: list[str]) -> Unit | None:
    """Return the unit of a rate or a time from its words in the singular, such as token, s and
    gpu."""
    if words and words[0] in SHORT:
        words = [*SHORT[words[0]], *words[1:]]
    if not words:
        return None
    counted, *divisors = words
    of: Of = ""
    remaining = []
    for word in divisors:
        if word in OF_DEVICE:
            of = "device"
        elif word in OF_ALL:
            of = "all"
        else:
            remaining.append(word)
    if counted in SECONDS:
        return _time(SECONDS[counted], remaining) if not of else None
    return _rate(counted, remaining, of)


def _time(seconds: float, divisors: list[str]) -> Unit | None:
    """Return the unit of a time: of a step, or of a whole training."""
    if len(divisors) == 1 and divisors[0] in STEPS:
        return Unit("s/step", seconds, "")
    if not divisors and seconds >= SECONDS["min"]:
        return Unit("minutes", seconds / SECONDS["min"], "")
    return None


def _rate(counted: str, divisors: list[str], of: Of) -> Unit | None:
    """Return the unit of a rate. FLOPS alone are per second."""
    scale, name = _scaled(counted)
    if name == "flops" and not divisors:
        divisors = ["s"]
    if len(divisors) != 1 or divisors[0] not in SECONDS:
        return None
    per_second = scale / SECONDS[divisors[0]]
    if name in FLOPS:
        return Unit("TFLOP/s", per_second / TERA, of)
    if name in TOKENS:
        return Unit("tokens/s", per_second, of)
    if name in SAMPLES:
        return Unit("samples/s", per_second, of)
    if name in STEPS and not of:
        return Unit("steps/s", per_second, of)
    return None


def _scaled(counted: str) -> tuple[float, str]:
    """Return the factor and the word of a counted word: 1000 and tok for ktok."""
    known = TOKENS | SAMPLES | STEPS | FLOPS
    if counted in known:
        return 1.0, counted
    factor = SCALES.get(counted[0])
    if factor and counted[1:] in known:
        return factor, counted[1:]
    return 1.0, counted


def _singular(word: str) -> str:
    """Return a word without its plural s; FLOPS stays what it is."""
    if word.endswith("flops"):
        return word
    known = TOKENS | SAMPLES | STEPS | OF_DEVICE
    without = word.removesuffix("s")
    if without in known or (without in SECONDS and len(without) > 1):
        return without
    scaled = without[1:] in known and without[:1] in SCALES
    return without if scaled else word
