"""The samples or tokens of a step, by a log's facts and its prints."""

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from perfkit.audit.fact_rules import MODEL_PARALLEL
from perfkit.audit.figure import Figure
from perfkit.audit.log import Columns, Log
from perfkit.audit.statements import ByCommand, SourcedFact
from perfkit.training.models import find_model

SEQUENCES = {"bert", "bert-large", "sequences/s"}
SAMPLES = {"samples/s", "images/s", "sequences/s"}
"""Units that count by the batch size. Tokens also need the sequence length; for frames and
other units, the number per sample is unknown."""
OF_SAMPLES = re.compile(r"sample", re.IGNORECASE)
"""Names of reported figures that tell that they count samples."""


def with_samples(rows: Columns, log: Log) -> Columns:
    """Return windows with further columns: the samples, or tokens if the log's rates count
    tokens, of a step of all devices (`samples_of_step`) and of one (`device_samples_of_step`);
    nan if unknown.

    What the command line states decides, then what each line prints of its own steps, then the
    facts: the batch of all devices if the log states it, because with tensor or pipeline
    parallelism it is not the batch of a device times their number.
    """
    ranks = log.number("ranks") or np.nan
    printed = _printed_samples(rows, log)
    if printed is not None and np.isfinite(printed.values).all():
        is_of_device = printed.of == "device"
        every = printed.values * ranks if is_of_device else printed.values
        device = printed.values if is_of_device else printed.values / ranks
    else:
        by_facts = (each or np.nan for each in _by_facts(log))
        every, device = (np.full(len(rows["steps"]), each) for each in by_facts)
    return rows | {"samples_of_step": every, "device_samples_of_step": device}


class PrintedSamples(NamedTuple):
    """The samples of a step in each window, of one device or of all."""

    values: np.ndarray
    of: Literal["device", "all"]


def _printed_samples(rows: Columns, log: Log) -> PrintedSamples | None:
    """Return the samples of a step that each line tells: by their number, by the batch of all
    devices or, where nothing else tells them, by its rate and time. None if the command line
    states them."""
    of = log.semantics.rate_of
    if _is_stated(log, "batch_size") or _is_stated(log, "global_batch_size"):
        return None
    if np.isfinite(rows["samples"]).any():
        return PrintedSamples(rows["samples"] / rows["steps"], of)
    if log.semantics.samples_vary:
        steps = rows["last"] - rows["since"] + 1
        varying: np.ndarray = rows["rate"] * rows["clock_seconds"] / steps
        # Those before the first line are unknown, as is their time.
        return PrintedSamples(np.where(np.isfinite(varying), varying, 0.0), of)
    if "global_batch_size" in rows and log.semantics.step == "update":
        return PrintedSamples(rows["global_batch_size"] * _counted_per_sample(log), "all")
    if not any(_by_facts(log)) and log.semantics.covers != "running":
        return PrintedSamples(rows["own_rate"] * rows["seconds"] / rows["steps"], of)
    return None


def _counted_per_sample(log: Log) -> float:
    """Return how many of its units the log counts for a sample; nan if unknown."""
    unit = unit_of(log.facts)
    if unit == "tokens/s":
        return float(log.number("sequence_length")) or np.nan
    return 1.0 if unit in SAMPLES else np.nan


def _by_facts(log: Log) -> tuple[float, float]:
    """Return the samples of a step by the facts, of all devices and of one; 0 if unknown."""
    if log.semantics.step == "epoch":
        return 0.0, 0.0
    in_unit = float(np.nan_to_num(_counted_per_sample(log)))
    ranks = log.number("ranks")
    device = _of_device(log) * in_unit
    every = _of_all(log) * in_unit
    if unit_of(log.facts) == "tokens/s" and not every and log.semantics.step == "update":
        every = float(log.number("tokens_per_update"))
    if every and ranks:
        device = every / ranks
    elif every and not log.number("accumulate"):
        # The batches of an update, and with them a device's part of it, are unknown.
        device = 0.0
    return every or device * ranks, device


def unit_of(facts: Mapping[str, SourcedFact]) -> str:
    """Return the unit in which a log's rates count; samples/s if it is unknown: so count
    throughputs that are computed by the batch size."""
    return _told_unit(facts) or "samples/s"


def unit_of_figures(facts: Mapping[str, SourcedFact], figures: Iterable[Figure]) -> str:
    """Return the unit of figures of a log; empty if it is unknown, as that of a figure which
    the log reports itself under a name that tells no unit."""
    for figure in figures:
        if figure.statistic == "reported" and not OF_SAMPLES.search(figure.name):
            return _told_unit(facts)
    return unit_of(facts)


def _told_unit(facts: Mapping[str, SourcedFact]) -> str:
    """Return the unit that the log, the command line or the model tells; empty if none does."""
    if "unit" in facts:
        return str(facts["unit"].value)
    model = find_model(facts["model"].value) if "model" in facts else None
    return model.unit if model else ""


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
