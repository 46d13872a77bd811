"""Facts of a log that the command line states: `-p NAME VALUE`."""

from collections.abc import Iterable, Mapping
from math import isclose

from perfkit.analysis.datasheets import datasheet_named, gpu_names
from perfkit.audit.numbers import number
from perfkit.audit.refusals import NoCount, UnknownFact, UnknownGpu
from perfkit.audit.statements import FactValue
from perfkit.core.format import plain
from perfkit.core.refusals import NotAvailable, Refusal
from perfkit.core.request import RequestError

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
GPU = "gpu_model"
PRECISION = "precision"
PRECISIONS = ("fp32", "tf32", "amp", "bf16", "fp16", "fp8")
NAMES = (*COUNTS, GPU, PRECISION)
MOST = 10**15
"""Largest count."""
LONGEST_NAME = 80
"""Characters of a GPU's name."""


def stated_facts(pairs: Iterable[tuple[str, str]]) -> dict[str, FactValue]:
    """Return the facts that pairs of a name and a text state; the last of equal names counts.
    Raises RequestError for an unknown name or GPU, and for a text that is no count."""
    problems: list[Refusal] = []
    facts: dict[str, FactValue] = {}
    for name, text in pairs:
        if name == GPU:
            if datasheet_named(text) is None:
                unknown = UnknownGpu(
                    parameter=f"-p {name}", value=plain(text), allowed=gpu_names()
                )
                problems.append(unknown)
            facts["gpu"] = plain(text)[:LONGEST_NAME].upper()
            continue
        if name == PRECISION:
            if text in PRECISIONS:
                facts[PRECISION] = text
            else:
                problems.append(NotAvailable.of(f"-p {name}", text, PRECISIONS))
            continue
        if name not in COUNTS:
            problems.append(UnknownFact.of(name, NAMES))
            continue
        count = _count(text)
        if count:
            facts[COUNTS[name]] = count
        else:
            problems.append(NoCount(parameter=f"-p {name}", value=text))
    if problems:
        raise RequestError(problems)
    return facts


def _count(text: str) -> int | None:
    """Return a whole number from 1 to MOST; None for another text."""
    try:
        value = number(text)
    except ValueError:
        return None
    # 8.03B becomes 8029999999.999999.
    if not 1 <= value <= MOST or not isclose(value, round(value), rel_tol=1e-12):
        return None
    return round(value)
