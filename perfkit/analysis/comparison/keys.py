"""What may be compared with what: keys in which two measurements must agree and keys that may
differ, and columns in which those of a series, or of a fleet's workload, agree."""

from collections.abc import Collection, Iterable, Mapping
from typing import get_args

from perfkit.analysis.script_arguments import lacking_options, own_options
from perfkit.measuring.config import Config
from perfkit.measuring.format import counted, one_line, plain, shortened
from perfkit.measuring.parameters import ABOUT, select
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import suggest
from perfkit.measuring.results.frames import listed, row_of
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.work import Kind, ModelWork, Work

KeyValue = str | int | float | bool | None
"""The value of a key; None if the measurement has none."""
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
PROTOCOL = tuple(name for name in Protocol.model_fields if name not in (*IGNORED, "name"))
OF_COMMANDS = ("commit", "dirty", "files_sha256")
"""What may differ between commands: branches are compared by one command."""
NOT_WORK = {"work", "modules", "files", *OF_COMMANDS, *MAY_DIFFER, *IGNORED, *ALIASES}
LIVE_LABEL = r"live-[0-9a-f]{6}"
"""The label, as a regular expression, of measurements that were made for an interleaved
comparison without a label of their own (interleaved_plan.py)."""


def keys_of(kind: Kind) -> tuple[str, ...]:
    """Return the keys in which two measurements of such a work must agree, except those given
    by `--across`; `model` is also the name of a script's file."""
    every = ["model", *work_keys(kind), "topology", *kind.reported]
    every += [*PROTOCOL, *HARDWARE, "nodes_differ"]
    return tuple(dict.fromkeys(every))


def work_keys(kind: Kind) -> list[str]:
    """Return the parameters that define such a work."""
    not_work = {*NOT_WORK, *kind.reported}
    fields = kind.model_fields | Config.model_fields
    return [name for name in fields if name not in not_work]


WORK = work_keys(ModelWork)
KEYS = tuple(dict.fromkeys(key for kind in get_args(Work) for key in keys_of(kind)))
FOLLOWING = {
    "arguments": ("precision", "parameters", "samples_per_step"),
    "script_sha256": ("model", "precision", "parameters", "samples_per_step"),
    "framework": (*select(follows="framework"), "threads"),
    "cpu_tuning": ("threads",),
    "python": ("threads",),
}
"""Key -> keys that may differ too if it is allowed to differ: a framework chooses how it does
the work, CPU tuning sets the threads, an environment's packages have their own thread pools,
and a script's arguments and content say what it tells the timer, but the ratio of two units
means nothing."""

MACHINE = ["device", *(f"environment.{name}" for name in ("cpu", "cpu_cores", "gpus"))]
"""Columns of `perfkit.load` that tell kinds of machines apart."""
SERIES = [*WORK, "topology", "used", "effective.tf32", *PROTOCOL, *MACHINE]
SERIES = [*dict.fromkeys([*SERIES, "input_sha256"])]
SERIES += ["arguments", "command", "flags", "told.unit", "told.parameters"]
"""Columns in which the measurements of a series agree: work, protocol and hardware. A script's
content may change within a series, as a framework's version may: it is listed as a change."""
WORKLOAD = [name for name in WORK if name != "node"]
WORKLOAD += ["precision", "topology", "arguments", "command", "flags", *PROTOCOL, *MACHINE]
"""Columns in which a fleet's measurements of one workload agree, failed ones, too. Nodes with
other hardware are judged apart."""

RARELY_TELLING = ("kernel", "os", "cpu_features", "suite_modified", "suite_source")
"""Keys whose differences rarely explain a ratio, or whose values say nothing to a reader; the
commits of the suite and the frameworks are such, too."""
COMMIT = "_commit"
"""End of the keys of commits."""
WIDTH = 40
"""Most characters shown of a value."""


def must_agree(measurement: Measurement) -> dict[str, KeyValue]:
    """Return the values of `keys_of` its work, without `input_sha256` if the input has no
    files."""
    result, row = measurement.result, row_of(measurement)
    values: dict[str, KeyValue] = {key: row.get(key) for key in keys_of(type(result.work))}
    for name in HARDWARE:
        values[name] = row.get(f"environment.{name}")
    reported = _reported(result, row)
    values |= {name: reported.get(name) for name in result.work.reported}
    if values.get("input_sha256", "") is None:
        del values["input_sha256"]
    return values


def _reported(result: Result, row: Mapping[str, KeyValue]) -> dict[str, KeyValue]:
    """Return what the ranks have reported by its key; nothing before they have."""
    if result.told:
        return result.told.model_dump()
    values: dict[str, KeyValue] = {"input_sha256": row.get("input_sha256")}
    if result.effective:
        values["parameters"] = result.effective.parameters
        for name in ("precision", "tf32", "threads"):
            values[name] = row.get(f"effective.{name}")
    return values


def may_differ(measurement: Measurement) -> dict[str, KeyValue]:
    """Return the values that are shown if they differ but do not prevent a comparison."""
    row, effective = row_of(measurement), measurement.result.effective
    values: dict[str, KeyValue] = {
        name: row[name] for name in (*MAY_DIFFER, *OF_COMMANDS) if name in row
    }
    for name in measurement.result.environment:
        if name not in HARDWARE:
            values[name] = row[f"environment.{name}"]
    if measurement.result.told:
        of_keys = {*measurement.result.work.reported}
        for name in measurement.result.told.model_dump(exclude=of_keys):
            values[f"told.{name}"] = row[f"told.{name}"]
    if effective:
        values["optimizer_settings"] = effective.optimizer_settings
        values["loss_scaling"] = effective.loss_scaling
        values["worker_variables"] = listed(effective.variables)
        for name, option in effective.strategy.items():
            values[f"strategy.{name}"] = option.state
        for name, value in effective.settings.items():
            values[f"settings.{name}"] = value
    if measurement.result.nccl_network:
        values["nccl_network"] = measurement.result.nccl_network
    return values


def differing(a: Mapping[str, KeyValue], b: Mapping[str, KeyValue]) -> Differences:
    """Return the keys present in both whose values differ."""
    return {key: (a[key], b[key]) for key in a if key in b and a[key] != b[key]}


def telling(differences: Differences) -> Differences:
    """Return the differences that may explain a ratio."""
    return {key: values for key, values in differences.items() if not rarely_tells(key)}


def rarely_telling(differences: Differences) -> list[str]:
    """Return the keys of the other differences: they are named without their values."""
    return [key for key in differences if rarely_tells(key)]


def rarely_tells(key: str) -> bool:
    """Return whether a difference in this key rarely explains a ratio."""
    return key in RARELY_TELLING or key.endswith(COMMIT)


def allowed(varied: Iterable[str], differences: Collection[str]) -> set[str]:
    """Return the keys that may differ between two measurements with these differences: the
    `varied` keys and those that follow them."""
    varied = {*varied}
    keys = {*varied}
    for key, following in FOLLOWING.items():
        # Differences of an ignored parameter, such as `python`, are not among the others.
        if key in varied and (key in differences or key in IGNORED):
            keys |= {*following}
    return keys


def wrong_keys(across: Iterable[str]) -> list[str]:
    """Return the errors in the keys of `--across`."""
    problems = []
    for key in across:
        if key not in KEYS:
            problems.append(
                f"--across {key}: not a key that must agree{suggest(key, KEYS)} (software and "
                f"labels may differ anyway); the keys are {', '.join(KEYS)}"
            )
    return problems


def format_pair(key: str, a: KeyValue, b: KeyValue) -> str:
    """Return two values of a key as text, A's first, shortened by `contrasted`."""
    return " | ".join(contrasted(key, a, b))


def contrasted(key: str, a: KeyValue, b: KeyValue, width: int = WIDTH) -> tuple[str, str]:
    """Return two values of a key as texts. Arguments of a script are those that differ. Long
    values are shortened: lists to the items that differ, others to `width` characters from
    shortly before their first difference."""
    if key == "arguments":
        a, b = _own_arguments(a, b), _own_arguments(b, a)
    are_counted = key == "gpus" and any("; " in str(value) for value in (a, b))
    a_text, b_text = (_gpu_names(a), _gpu_names(b)) if are_counted else (_line(a), _line(b))
    if max(len(a_text), len(b_text)) <= width:
        return a_text, b_text
    a_items, b_items = a_text.split(", "), b_text.split(", ")
    only_a = [item for item in a_items if item not in b_items]
    only_b = [item for item in b_items if item not in a_items]
    are_lists = len(a_items) > 1 or len(b_items) > 1
    if are_lists and (only_a or only_b):
        return shortened(", ".join(only_a), 5 * width), shortened(", ".join(only_b), 5 * width)
    start = max(0, _first_difference(a_text, b_text) - width // 4)
    return _excerpt(a_text, start, start + width), _excerpt(b_text, start, start + width)


def _own_arguments(value: KeyValue, other: KeyValue) -> str:
    """Return the arguments of a script that another lacks; all if only their order differs."""
    own = own_options(str(value or ""), [str(other or "")])
    lacking = lacking_options(str(value or ""), [str(other or "")])
    return " ".join(own) if own or lacking else str(value or "")


def _line(value: KeyValue) -> str:
    return plain(one_line(value))


def _gpu_names(value: KeyValue) -> str:
    """Return the names of GPUs without their memory, counted: "8 × Tesla V100"."""
    if not value:
        return _line(value)
    return plain(counted(gpu.split(",")[0] for gpu in str(value).split("; ")))


def _first_difference(a: str, b: str) -> int:
    """Return the position of the first character in which two texts differ."""
    length = min(len(a), len(b))
    for position in range(length):
        if a[position] != b[position]:
            return position
    return length


def _excerpt(text: str, start: int, end: int) -> str:
    before = "…" if start else ""
    after = "…" if text[end:] else ""
    return before + text[start:end] + after
