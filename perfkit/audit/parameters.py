"""Facts of a log that the command line states: `-p NAME VALUE`."""

from collections.abc import Iterable, Mapping
from math import inf

from perfkit.audit.config_facts import MOST, count_of
from perfkit.audit.numbers import number
from perfkit.audit.statements import FactValue
from perfkit.measuring.format import plain
from perfkit.measuring.request import RequestError, not_available, suggest

COUNTS: Mapping[str, str] = {
    "batch_size": "batch_size",
    "global_batch_size": "global_batch_size",
    "devices": "ranks",
    "sequence_length": "sequence_length",
    "parameters": "parameters",
    "layers": "layers",
    "hidden_size": "hidden_size",
}
"""Name on the command line -> fact, a whole number. `batch_size` is that of a device."""
GPU, PEAK, PRECISION = "gpu_model", "peak_tflops", "precision"
"""The peak is the dense one of a device, in TFLOP/s."""
PRECISIONS = ("fp32", "tf32", "amp", "bf16", "fp16", "fp8")
NAMES = (*COUNTS, GPU, PEAK, PRECISION)
LONGEST_NAME = 80
"""Characters of a GPU's name."""


def stated_facts(pairs: Iterable[tuple[str, str]]) -> dict[str, FactValue]:
    """Return the facts that pairs of a name and a text state; the last of equal names counts.
    Raises RequestError for an unknown name, and for a text that is no such value."""
    problems: list[str] = []
    facts: dict[str, FactValue] = {}
    for name, text in pairs:
        value = _value(name, text)
        if value is not None:
            facts["gpu" if name == GPU else COUNTS.get(name, name)] = value
        elif name == PRECISION:
            problems.append(not_available(f"-p {name}", text, PRECISIONS))
        elif name in NAMES:
            problems.append(
                f"-p {name}: {text} is no positive number of this kind; type it like 256, "
                "8.03e9 or 8B"
            )
        else:
            known = f"known: {', '.join(NAMES)}{suggest(name, NAMES)}"
            problems.append(f"-p: no fact of a log is called {name}; {known}")
    if problems:
        raise RequestError(problems)
    return facts


def _value(name: str, text: str) -> FactValue | None:
    """Return the value that a text states for a name; None if it states none."""
    if name == GPU:
        return plain(text)[:LONGEST_NAME].upper() or None
    if name == PRECISION:
        return text if text in PRECISIONS else None
    if name == PEAK:
        return _positive(text)
    count = count_of(text) if name in COUNTS else None
    return count if count and 1 <= count <= MOST else None


def _positive(text: str) -> float | None:
    try:
        value = number(text)
    except ValueError:
        return None
    return value if 0 < value < inf else None
