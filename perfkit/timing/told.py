"""What a script tells the timer about its training."""

import math
import numbers
import re
from typing import NamedTuple, Self

MOST_SAMPLES = 10**9
"""Most samples of a step, far above any real one."""
UNIT = r"[^\W\d_][\w -]{0,27}"
"""Pattern of what a script counts, such as `images`."""
PRECISION = r"[\w.+ -]{1,30}"
"""Pattern of the name of a number format."""


class Told(NamedTuple):
    """The arguments of perfkit.StepTimer, checked."""

    samples_per_step: int
    unit: str
    flops_per_sample: float | None
    parameters: int | None
    precision: str | None

    @classmethod
    def checked(
        cls,
        samples_per_step: int,
        unit: str,
        flops_per_sample: float | None,
        parameters: int | None,
        precision: str | None,
    ) -> Self:
        """Return the arguments as plain numbers and texts. Raises TypeError and ValueError."""
        samples = _whole("samples_per_step", samples_per_step)
        if samples > MOST_SAMPLES:
            raise ValueError(f"samples_per_step={samples}: at most {MOST_SAMPLES}")
        # What throughputs count, images/s, names the same unit.
        unit = unit.removesuffix("/s")
        if not re.fullmatch(UNIT, unit):
            raise ValueError(
                f"unit={unit!r}: must be a plural noun of up to 28 letters, digits, blanks, "
                "hyphens and underscores, such as 'images' or 'tokens'"
            )
        if precision is not None and not re.fullmatch(PRECISION, precision):
            raise ValueError(
                f"precision={precision!r}: must be the name of a number format, such as "
                "'bf16', of up to 30 characters"
            )
        count = None if parameters is None else _whole("parameters", parameters)
        return cls(samples, unit, _flops(flops_per_sample), count, precision)


def _whole(name: str, value: int) -> int:
    """Return a count as an int; libraries have their own types of integers."""
    is_whole = isinstance(value, numbers.Real) and value == int(value)
    if not is_whole or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
    return int(value)


def _flops(flops_per_sample: float | None) -> float | None:
    if flops_per_sample is None:
        return None
    flops = float(flops_per_sample)
    if not math.isfinite(flops) or flops <= 0:
        raise ValueError(f"flops_per_sample={flops_per_sample!r}: must be a positive number")
    return flops
