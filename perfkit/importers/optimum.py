"""optimum-benchmark's report of a training: one JSON object, `overall`, `warmup` and `train`,
each with `latency` (every step's seconds) and `throughput`; maybe beside its `config`."""

from typing import Any

import numpy as np

from perfkit.importers.form import Contents, Document, told
from perfkit.importers.log import RAW, Meaning, Step
from perfkit.importers.patterns import floats

PARTS = ("overall", "warmup", "train")
FACTS = {
    "batch_size": "per_device_train_batch_size",
    "accumulate": "gradient_accumulation_steps",
}


def _read(document: dict[str, Any]) -> Contents | None:
    report = document.get("report", document)
    if not all(isinstance(_at(report, part), dict) for part in PARTS):
        return None
    rates = {part: _at(report, part, "throughput", "value") for part in PARTS}
    values = _at(report, "overall", "latency", "values")
    scenario = _at(document, "config", "scenario")
    asked = {name: _at(scenario, "training_arguments", key) for name, key in FACTS.items()}
    return Contents(
        rows=_rows(values if isinstance(values, list) else [], _at(scenario, "max_steps")),
        facts=_framework(_at(document, "config", "backend", "name"))
        | {name: value for name, value in asked.items() if type(value) is int},
        told=[
            told(f"{part} throughput", repr(rate), "samples/s", 1)
            for part, rate in rates.items()
            if isinstance(rate, int | float)
        ],
    )


def _framework(backend: Any) -> dict[str, int | str]:
    return {"framework": "torch"} if backend == "pytorch" else {}


def _rows(values: list[Any], steps: Any) -> np.ndarray:
    """Rows of RAW; the `steps` of several processes stand one after the other."""
    rows = np.zeros(len(values), RAW)
    for name in ("reader", "rate", "loss", "accuracy", "at"):
        rows[name] = np.nan
    rows["seconds"] = floats([repr(value).encode() for value in values]) if values else 0
    rows["rank"], rows["step"] = -1, np.arange(1, len(values) + 1)
    if type(steps) is int and 0 < steps <= len(values):
        rows["rank"], rows["step"] = np.divmod(np.arange(len(values)), steps)
        rows["step"] += 1
    return rows


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


DOCUMENT = Document(
    name="optimum-benchmark",
    meaning=Meaning(
        rate_of="device",
        covers=Step(),
        counts_from=1,
        reader="apart",
        source="huggingface/optimum-benchmark, scenarios/training/scenario.py and "
        "trackers/latency.py: latency is from on_step_begin to on_step_end",
    ),
    read=_read,
)
