"""In what two measurements must agree to be compared, and in what they may differ."""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from perfkit.config import ABOUT, Config, Protocol, select
from perfkit.request import suggest
from perfkit.results.frames import row_of
from perfkit.results.store import Measurement
from perfkit.text.format import column_value, one_line
from perfkit.text.terminal import plain

Value = str | int | float | bool | None
Differences = dict[str, tuple[Value, Value]]
"""Key -> A's value and B's."""

MAY_DIFFER = select(compared="show")
"""Parameters that don't define the work."""
IGNORED = select(compared="ignore")
"""Parameters whose differences are not shown: they matter to nobody, or other keys and the
number of repeats show them."""
ALIASES = {name: about.key for name, about in ABOUT.items() if about.key}
"""Parameter -> the key that shows what it sets, of those that have another name. `gpus`, as a
key, is what GPUs there are; how many are used is in `topology`."""
HARDWARE = ["cpu", "cpu_cores", "cpu_features", "memory", "virtual_machine", "gpus"]
HARDWARE += ["gpu_topology", "interconnect", "data_disk"]
"""Facts of the environment that must agree; all others are software, which may differ."""
SEEN = ("precision", "tf32", "threads", "parameters", "input_sha256")
"""Of what must agree, what only the workers see: precision and TF32 as really used, thread
pools, the number of trainable parameters, the input's list of files."""
PROTOCOL = tuple(name for name in Protocol.model_fields if name not in (*IGNORED, "name"))
WORK = tuple(
    name for name in Config.model_fields if name not in (*MAY_DIFFER, *IGNORED, *ALIASES, *SEEN)
)
KEYS = (*WORK, "topology", *SEEN, *PROTOCOL, *HARDWARE, "nodes_differ", "imported")
"""In these two measurements must agree, or the comparison says that it is across them."""
FOLLOWING = {
    "framework": (*select(follows="framework"), "threads"),
    "cpu_tuning": ("threads",),
    "python": ("threads",),
}
"""Key -> keys that may differ too where that one differs and is meant to: how a framework does
the work is its own, tuning is what sets the threads, and an environment's packages bring thread
pools of their own."""

WIDTH = 40
"""Characters of a value that are shown."""


def must_agree(measurement: Measurement) -> dict[str, Value]:
    """The values of KEYS. Without `input_sha256` where there are no files: it then says no
    more than `input`; of an imported measurement, without all that its log does not state."""
    row, used = row_of(measurement), measurement.result.effective
    known = row | {name: row.get(f"environment.{name}") for name in HARDWARE}
    known |= {name: row.get(f"effective.{name}") for name in ("precision", "tf32")}
    known |= {"threads": used and _listed(used.threads), "parameters": used and used.parameters}
    optional = KEYS if row["imported"] else ("input_sha256",)
    values = {key: known.get(key) for key in KEYS}
    return {k: value for k, value in values.items() if value is not None or k not in optional}


def may_differ(measurement: Measurement) -> dict[str, Value]:
    """What is shown where it differs, and keeps nothing from being compared."""
    row, used = row_of(measurement), measurement.result.effective
    software = (name for name in measurement.result.environment if name not in HARDWARE)
    values = {name: row[name] for name in MAY_DIFFER}
    values |= {name: row[f"environment.{name}"] for name in software}
    if used:
        values["optimizer_settings"] = used.optimizer_settings
        values["loss_scaling"] = used.loss_scaling
        values["worker_variables"] = _listed(used.variables)
        values |= {f"strategy.{name}": one.state for name, one in used.strategy.items()}
        values |= {f"settings.{name}": value for name, value in used.settings.items()}
    return values


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


def differing(one: Mapping[str, Value], other: Mapping[str, Value]) -> Differences:
    """In what two differ, of the keys that both have."""
    shared = [key for key in one if key in other]
    return {key: (one[key], other[key]) for key in shared if one[key] != other[key]}


def allowed(meant: Iterable[str], found: Iterable[str]) -> set[str]:
    """The keys in which two may differ that differ in those `found`: some are `meant` to."""
    crossed = {*meant}
    # What is ignored is never found.
    return crossed.union(*(FOLLOWING.get(key, ()) for key in crossed & {*found, *IGNORED}))


def across_problems(keys: Iterable[str]) -> list[str]:
    """What is wrong with these keys after `--across`."""
    problems = []
    for key in keys:
        if key in KEYS:
            continue
        if key in (*MAY_DIFFER, *IGNORED):
            problems.append(f"--across {key}: not needed, it may differ")
        elif key in ALIASES:
            problems.append(
                f"--across {key}: its key is {ALIASES[key]}; --across {ALIASES[key]}"
            )
        else:
            problems.append(
                f"--across {key}: no key that must agree{suggest(key, KEYS)} "
                f"(software may differ anyway); those are {', '.join(KEYS)}"
            )
    return problems


def format_pair(key: str, one: Value, other: Value) -> str:
    """Two values as text, A's first, as `contrasted` has them."""
    return " | ".join(contrasted(key, one, other))


def contrasted(key: str, one: Value, other: Value, width: int = WIDTH) -> list[str]:
    """Two values as texts: whole if they are short, else `width` characters from near where
    they begin to differ."""
    names = key == "gpus" and any("; " in str(value) for value in (one, other))
    texts = [
        plain(column_value("environment.gpus", value) if names and value else one_line(value))
        for value in (one, other)
    ]
    alike = [*takewhile(lambda both: both[0] == both[1], zip(*texts, strict=False))]
    start = max(0, len(alike) - width // 4) if max(map(len, texts)) > width else 0
    end = start + width
    return [
        ("…" if start else "") + text[start:end] + ("…" if text[end:] else "") for text in texts
    ]
