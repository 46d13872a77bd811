"""The samples or tokens of a step, by a log's facts."""

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from perfkit.audit.fact_rules import MODEL_PARALLEL
from perfkit.audit.figure import Figure, unit_for
from perfkit.audit.log import Log
from perfkit.audit.statements import ByCommand, SourcedFact
from perfkit.core.models import find_model

SEQUENCES = {"bert", "bert-large", "sequences/s"}
SAMPLES = {"samples/s", "images/s", "sequences/s"}
"""Units that count by the batch size. Tokens also need the sequence length; for frames and
other units, the number per sample is unknown."""

OF_SAMPLES = re.compile(r"sample", re.IGNORECASE)
"""Names of reported figures that tell that they count samples."""


class StepSamples(NamedTuple):
    """Samples, or tokens if the log's rates count tokens, of a step: of all devices, and of one
    device; 0 if unknown."""

    all: float
    device: float

    @classmethod
    def of(cls, log: Log) -> "StepSamples":
        """Return the samples of a step by the log's facts. The batch of all devices decides, if
        the log states it: with tensor or pipeline parallelism it is not the batch of a device
        times their number."""
        if log.semantics.step == "epoch":
            return cls(0, 0)
        unit = unit_of(log.facts)
        in_unit = 1 if unit in SAMPLES else 0
        if unit == "tokens/s":
            in_unit = log.number("sequence_length")
        ranks = log.number("ranks")
        device = _of_device(log) * in_unit
        whole = _of_all(log) * in_unit
        if unit == "tokens/s" and not whole and log.semantics.step == "update":
            whole = float(log.number("tokens_per_update"))
        if whole and ranks:
            device = whole / ranks
        elif whole and not log.number("accumulate"):
            # The batches of an update, and with them a device's part of it, are unknown.
            device = 0.0
        return cls(whole or device * ranks, device)

    @property
    def are_known(self) -> bool:
        return bool(self.all or self.device)


def unit_of(facts: Mapping[str, SourcedFact]) -> str:
    """Return the unit in which a log's rates count; samples/s if it is unknown: so count
    throughputs that are computed by the batch size."""
    return _told_unit(facts) or "samples/s"


def unit_of_figures(facts: Mapping[str, SourcedFact], figures: Iterable[Figure]) -> str:
    """Return the unit of figures of a log; empty if it is unknown, as that of a figure which
    the log reports itself under a name that tells no unit."""
    for figure in figures:
        is_of_samples = figure.statistic != "reported" or OF_SAMPLES.search(figure.name)
        if not is_of_samples:
            return _told_unit(facts)
    return unit_of(facts)


def _told_unit(facts: Mapping[str, SourcedFact]) -> str:
    """Return the unit that the log, the command line or the model tells; empty if none does."""
    if "unit" in facts:
        return str(facts["unit"].value)
    model = find_model(facts["model"].value) if "model" in facts else None
    return model.unit if model else ""


def rate_unit(log: Log, *, of_all: bool) -> str:
    """Return the unit of a throughput of all devices or of one."""
    return unit_for(unit_of(log.facts), of_all=of_all)


def accumulated_batches(log: Log) -> int:
    """Return the batches of an update. BERT suites accumulate by default, so an unknown number
    is 0 for them and 1 for others."""
    accumulate = log.number("accumulate")
    if accumulate or {log.fact("model"), log.fact("unit")} & SEQUENCES:
        return accumulate
    return 1


def _is_stated(log: Log, name: str) -> bool:
    return name in log.facts and isinstance(log.facts[name].by, ByCommand)


def _of_device(log: Log) -> float:
    """Return a device's samples in a step: those of a batch, which the devices of a model
    replica share, or of an update's batches. The command line states those of an update."""
    samples = float(log.number("batch_size"))
    batches = accumulated_batches(log)
    if _is_stated(log, "batch_size"):
        is_batch = log.semantics.step == "batch" and batches
        return samples / batches if is_batch else samples
    samples /= prod(log.number(name) or 1 for name in MODEL_PARALLEL)
    return samples * batches if log.semantics.step == "update" else samples


def _of_all(log: Log) -> float:
    """Return the samples of all devices in a step, if the log states those of an update."""
    samples = float(log.number("global_batch_size"))
    if _is_stated(log, "batch_size") and not _is_stated(log, "global_batch_size"):
        return 0.0
    if log.semantics.step == "update":
        return samples
    batches = accumulated_batches(log)
    return samples / batches if batches else 0.0
