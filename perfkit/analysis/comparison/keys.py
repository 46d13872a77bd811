"""Keys in which two measurements must agree to be compared, and keys that may differ."""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from perfkit.core.config import ABOUT, Config, Protocol, select
from perfkit.core.format import one_line, plain, shortened
from perfkit.core.request import suggest
from perfkit.core.results.frames import row_of
from perfkit.core.results.store import Measurement
from perfkit.report.text.names import column_value

KeyValue = str | int | float | bool | None
Differences = dict[str, tuple[KeyValue, KeyValue]]
"""Key -> A's value, B's value."""

MAY_DIFFER = select(compared="show")
"""Parameters that don't define the work."""
IGNORED = select(compared="ignore")
"""Parameters whose differences are not shown: they are irrelevant, or other keys or the number
of repeats show them."""
ALIASES = {name: about.key for name, about in ABOUT.items() if about.key}
"""Parameter -> key that shows its effect, if the names differ. The key `gpus` is the models of
the GPUs; `topology` has the number used."""
HARDWARE = ["cpu", "cpu_cores", "cpu_features", "memory", "virtual_machine", "gpus"]
HARDWARE += ["gpu_topology", "interconnect", "data_disk"]
"""Facts of the environment that must agree; all others are software, which may differ."""
SEEN = ("precision", "tf32", "threads", "parameters", "input_sha256")
"""Keys that only the workers report: effective precision and TF32, thread pools, the number of
trainable parameters, the input's list of files."""
PROTOCOL = tuple(name for name in Protocol.model_fields if name not in (*IGNORED, "name"))
WORK = tuple(
    name for name in Config.model_fields if name not in (*MAY_DIFFER, *IGNORED, *ALIASES, *SEEN)
)
KEYS = (*WORK, "topology", *SEEN, *PROTOCOL, *HARDWARE, "nodes_differ")
"""Keys in which two measurements must agree, except those given by `--across`."""
FOLLOWING = {
    "framework": (*select(follows="framework"), "threads"),
    "cpu_tuning": ("threads",),
    "python": ("threads",),
}
"""Key -> keys that may differ too if it is allowed to differ: a framework chooses how it does
the work, CPU tuning sets the threads, and an environment's packages have their own thread
pools."""

WIDTH = 40
"""Most characters shown of a value."""


def must_agree(measurement: Measurement) -> dict[str, KeyValue]:
    """Return the values of KEYS, without `input_sha256` if the input has no files."""
    row, used = row_of(measurement), measurement.result.effective
    known = row | {name: row.get(f"environment.{name}") for name in HARDWARE}
    known |= {name: row.get(f"effective.{name}") for name in ("precision", "tf32")}
    known |= {"threads": used and _listed(used.threads), "parameters": used and used.parameters}
    values = {key: known.get(key) for key in KEYS}
    if values["input_sha256"] is None:
        del values["input_sha256"]
    return values


def may_differ(measurement: Measurement) -> dict[str, KeyValue]:
    """Return the values that are shown if they differ but do not prevent a comparison."""
    row, used = row_of(measurement), measurement.result.effective
    software = (name for name in measurement.result.environment if name not in HARDWARE)
    values = {name: row[name] for name in MAY_DIFFER}
    values |= {name: row[f"environment.{name}"] for name in software}
    if used:
        values["optimizer_settings"] = used.optimizer_settings
        values["loss_scaling"] = used.loss_scaling
        values["worker_variables"] = _listed(used.variables)
        values |= {f"strategy.{name}": option.state for name, option in used.strategy.items()}
        values |= {f"settings.{name}": value for name, value in used.settings.items()}
    return values


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


def differing(a: Mapping[str, KeyValue], b: Mapping[str, KeyValue]) -> Differences:
    """Return the keys present in both whose values differ."""
    return {key: (a[key], b[key]) for key in a if key in b and a[key] != b[key]}


def allowed(varied: Iterable[str], found: Iterable[str]) -> set[str]:
    """Return the keys that may differ between two measurements whose differences are `found`:
    the `varied` keys and those that follow them."""
    keys = {*varied}
    # Differences of ignored parameters are never found.
    return keys.union(*(FOLLOWING.get(key, ()) for key in keys & {*found, *IGNORED}))


def across_problems(keys: Iterable[str]) -> list[str]:
    """Return the errors in the keys of `--across`."""
    return [
        f"--across {key}: not a key that must agree{suggest(key, KEYS)} (software and labels "
        f"may differ anyway); the keys are {', '.join(KEYS)}"
        for key in keys
        if key not in KEYS
    ]


def format_pair(key: str, one: KeyValue, other: KeyValue) -> str:
    """Return two values as text, A's first, shortened by `contrasted`."""
    return " | ".join(contrasted(key, one, other))


def contrasted(key: str, one: KeyValue, other: KeyValue, width: int = WIDTH) -> list[str]:
    """Return two values as texts, in full if they are short; of longer lists, the items that
    differ, of others `width` characters from shortly before their first difference."""
    names = key == "gpus" and any("; " in str(value) for value in (one, other))
    texts = [
        plain(column_value("environment.gpus", value) if names and value else one_line(value))
        for value in (one, other)
    ]
    items = [text.split(", ") for text in texts]
    known = [*map(set, items)]
    only = [
        [i for i in own if i not in rest] for own, rest in zip(items, known[::-1], strict=True)
    ]
    if max(map(len, texts)) > width and max(map(len, items)) > 1 and any(only):
        return [shortened(", ".join(each), 5 * width) or "–" for each in only]
    alike = [*takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))]
    start = max(0, len(alike) - width // 4) if max(map(len, texts)) > width else 0
    end = start + width
    return [
        ("…" if start else "") + text[start:end] + ("…" if text[end:] else "") for text in texts
    ]
