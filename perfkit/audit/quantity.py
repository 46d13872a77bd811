"""Numbers as people write them in a claim: 10984.436, 12,810 tokens/s, 21.9k tok/s/GPU,
45 % MFU."""

import re

from perfkit.audit.claim import ClaimedNumber, ClaimedQuantity, Of
from perfkit.audit.figure import LEAST_RATE, MOST_RATE
from perfkit.audit.recompute import half_of
from perfkit.measuring.units import TERA

LONGEST = 80
"""Characters of a claim."""
NUMBER = re.compile(r"(?:\d{1,3}(?:[,_]\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.I)
"""A number, with commas or underscores only between thousands."""
SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "p": 1e15}
SECONDS = {"ms": 1e-3, "mil": 1e-3, "min": 60, "s": 1, "h": 3600, "d": 86400}
"""Beginning of a unit of time -> its seconds."""
PER_SECOND = r"/s(?:ecs?|econds?)?"
STEP = r"(?:step|it|iter|iteration|update)s?"
UNITS: dict[ClaimedQuantity | None, str] = {
    None: r"(?P<scale>[kmb]?)",
    "tokens/s": rf"(?P<scale>[kmbg]?)(?:tok(?:en)?s?{PER_SECOND}|tps|tgs)",
    "samples/s": r"(?P<scale>[kmbg]?)(?:(?:sample|image|img|im|sequence|seq|sentence|example|"
    rf"frame)s?{PER_SECOND}|fps)",
    "TFLOP/s": rf"(?P<scale>[mgtp]?)(?:flops?{PER_SECOND}|flops)",
    "MFU": "%?mfu%?",
    "s/step": rf"(?P<time>ms|msecs?|milliseconds?|s|secs?|seconds?|min|minutes?)/{STEP}",
    "steps/s": rf"{STEP}{PER_SECOND}",
    "minutes": r"(?P<time>min|minutes?|h|hrs?|hours?|days?)",
}
"""Quantity -> regex of its unit in small letters without spaces and devices; None without a
unit."""
PER_DEVICE = re.compile("/(?:gpu|device|chip|card|rank|accelerator|gcd|npu|tpu)")
OF_ALL = re.compile("(?:total|overall|global|aggregate|all)$")
HAS_SCOPE = ("tokens/s", "samples/s", "TFLOP/s", None)
"""Quantities that are of one device or of all."""
EXAMPLES = (
    "10984.436, '12,810 tokens/s', '512 images/s', '6400 tokens/s/GPU', '400 TFLOP/s/GPU', "
    "'45 % MFU', '1.34 s/step', '0.75 steps/s', '5.6 minutes'"
)


def read_claim(text: str) -> ClaimedNumber | None:
    """Return the number that a claim states; None if it has no number, another unit than those
    of UNITS, or a size that no training has."""
    claim = text.strip()
    number = NUMBER.search(claim)
    if not number or len(claim) > LONGEST:
        return None
    rest = f"{claim[: number.start()]} {claim[number.end() :]}".lower()
    unit = re.sub(r"[\s():=~≈]", "", re.sub(r"\bper\b", "/", rest))
    of: Of = ""
    if PER_DEVICE.search(unit) or unit == "tgs":
        of = "device"
    elif OF_ALL.search(unit):
        of = "all"
    unit = OF_ALL.sub("", PER_DEVICE.sub("", unit))
    for quantity, pattern in UNITS.items():
        match = re.fullmatch(pattern, unit)
        if match:
            return _claimed(claim, number[0], quantity, match, of)
    return None


def _claimed(
    claim: str, digits: str, quantity: ClaimedQuantity | None, unit: re.Match[str], of: Of
) -> ClaimedNumber | None:
    digits = re.sub("[,_]", "", digits)
    factor = _factor(quantity, unit)
    value = float(digits) * factor
    # 45 MFU: as a share it would be 4,500 %.
    is_odd_share = quantity == "MFU" and value > 100 and "%" not in claim
    if is_odd_share or not LEAST_RATE <= value <= MOST_RATE:
        return None
    return ClaimedNumber(
        text=claim,
        value=value,
        half=half_of(digits) * factor,
        quantity=quantity,
        of=of if quantity in HAS_SCOPE else "",
    )


def _factor(quantity: ClaimedQuantity | None, unit: re.Match[str]) -> float:
    """Return what a number in a unit is multiplied by to be in that of its quantity."""
    groups = unit.groupdict()
    scale = SCALES[groups.get("scale") or ""]
    seconds = 1.0
    if "time" in groups:
        seconds = next(SECONDS[begin] for begin in SECONDS if groups["time"].startswith(begin))
    match quantity:
        case "TFLOP/s":
            return scale / TERA
        case "MFU":
            return 1.0 if "%" in unit[0] else 100.0
        case "minutes":
            return seconds / 60
        case "s/step":
            return seconds
    return scale


def significant_digits(text: str) -> int:
    """Return the digits of a number that count: 5 for 10,984 and 0.012500, 3 for 12,800."""
    number = NUMBER.search(text)
    assert number
    mantissa = number[0].lower().partition("e")[0]
    digits = re.sub(r"\D", "", mantissa).lstrip("0")
    return len(digits if "." in mantissa else digits.rstrip("0"))
