"""Measurements beside the user's own references, a YAML file of entries such as

- match: {model: resnet50, framework: torch, batch_size: 256, gpu: H200}
  value: 2950
  tolerance: 5 %
  source: acceptance of the first node
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perfkit.analysis.comparison.keys import HARDWARE, KEYS, PROTOCOL, KeyValue, must_agree
from perfkit.analysis.comparison.selections import ComparisonError
from perfkit.analysis.datasheets import is_class
from perfkit.analysis.published.matches import gpu_name
from perfkit.measuring.format import one_line
from perfkit.measuring.parameters import ABOUT
from perfkit.measuring.request import suggest
from perfkit.measuring.results.base import Positive, Stored
from perfkit.measuring.results.frames import MeasurementRow, row_of
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statistics import median_estimate

SUFFIXES = (".yaml", ".yml")
NAMES = ("gpu", *KEYS)
"""Names in a `match`: gpu, the class of GPU, and the keys of comparisons."""
NOT_SAVED = {*PROTOCOL, *HARDWARE, "nodes_differ", "node", "seed", "threads"}
NOT_SAVED |= {"input_sha256", "script_sha256", "parameters"}
"""Names that are not saved, so that a reference holds on other nodes and for later runs."""
ALLOWED = "an entry has match (names and values), value (of one device), tolerance, source"
State = Literal["ok", "low", "no reference"]


def _share(text: Any) -> float:
    number, sign, rest = str(text).partition("%")
    if not sign or rest:
        raise ValueError(f"{text} is not a percentage such as 5 %")
    return float(number) / 100


def _known(match: dict[str, KeyValue]) -> dict[str, KeyValue]:
    for name in match:
        if name not in NAMES:
            wrong = f"no such name: {name}{suggest(name, NAMES)}"
            raise ValueError(f"{wrong}; the names are {', '.join(NAMES)}")
    return match


class OwnReference(Stored):
    """An entry of a references file."""

    match: Annotated[dict[str, KeyValue], Field(min_length=1), AfterValidator(_known)]
    """values of the measurements that it is for"""
    value: Positive
    """throughput of one device"""
    tolerance: Annotated[float | None, Field(ge=0, lt=1), BeforeValidator(_share)] = None
    """share by which a measurement may be lower; None: as the command says"""
    source: str = ""
    """where the value comes from"""


class Judged(Stored):
    """A measurement beside a reference."""

    name: str
    """id of the measurement"""
    per_device: float
    """measured throughput of one device"""
    interval: tuple[float, float] | None
    """its interval; None for a single repeat, whose value decides"""
    unit: str
    """unit of the throughput"""
    reference: OwnReference | None
    """None if no entry matches"""
    state: State
    """low: the whole interval lies below the reference's value x (1 - tolerance)"""


class OwnComparison(Stored):
    """Measurements beside all entries that match them."""

    level: float
    """confidence level of the intervals, as requested"""
    tolerance: float
    """tolerance of entries without their own"""
    judged: list[Judged]

    @property
    def is_low(self) -> bool:
        return any(each.state == "low" for each in self.judged)


def read_references(file: Path) -> list[OwnReference]:
    """Read a references file. Raises ComparisonError with the first thing that is wrong."""
    try:
        content = YAML(typ="safe").load(file.read_text("utf-8"))
        return TypeAdapter(list[OwnReference]).validate_python(content)
    except ValidationError as error:
        problem = _first_problem(error)
    except OSError as error:
        problem = str(error.strerror)
    except (ValueError, YAMLError) as error:
        problem = one_line(error)
    raise ComparisonError([f"{file}: {problem}"])


def _first_problem(error: ValidationError) -> str:
    fault = error.errors()[0]
    place = [str(part) for part in fault["loc"]]
    if place:
        place[0] = f"entry {int(place[0]) + 1}"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{': '.join([*place, message])}; {ALLOWED}"


def judge(
    measurements: Iterable[Measurement],
    references: Sequence[OwnReference],
    tolerance: float,
    level: float,
) -> OwnComparison:
    """Return the measurements, which have a number, beside all references that match them."""
    judged = []
    for measurement in measurements:
        matching: list[OwnReference | None] = []
        matching += [each for each in references if _matches(each, measurement)]
        for reference in matching or [None]:
            judged.append(_judged(measurement, reference, tolerance, level))
    return OwnComparison(level=level, tolerance=tolerance, judged=judged)


def _matches(reference: OwnReference, measurement: Measurement) -> bool:
    values = must_agree(measurement)
    for name, value in reference.match.items():
        if name == "gpu":
            gpu = gpu_name(row_of(measurement))
            if not (gpu and is_class(gpu, str(value))):
                return False
        # YAML reads some texts as numbers, such as the arguments of a script.
        elif str(values.get(name)) != str(value):
            return False
    return True


def _judged(
    measurement: Measurement, reference: OwnReference | None, tolerance: float, level: float
) -> Judged:
    result = measurement.result
    devices = result.config.device_count
    estimate = median_estimate(result.throughputs, level)
    low, high = estimate.low / devices, estimate.high / devices
    state: State = "no reference"
    if reference:
        own = reference.tolerance
        allowed = tolerance if own is None else own
        state = "low" if high < reference.value * (1 - allowed) else "ok"
    return Judged(
        name=result.id,
        per_device=estimate.value / devices,
        interval=(low, high) if len(result.throughputs) > 1 else None,
        unit=result.counts.unit,
        reference=reference,
        state=state,
    )


def _has_effect(name: str, row: MeasurementRow) -> bool:
    only = ABOUT[name].only if name in ABOUT else {}
    return all(row.get(other) in (None, *values) for other, values in only.items())


def save_references(file: Path, measurements: Iterable[Measurement]) -> None:
    """Write measurements, which have a number, as a references file; of those that match the
    same, the newest. Raises OSError, also if the file exists: it may have been edited."""
    entries = {}
    for measurement in sorted(measurements, key=lambda each: each.result.created):
        result, row = measurement.result, row_of(measurement)
        match: dict[str, KeyValue] = {}
        for name, value in must_agree(measurement).items():
            if name not in NOT_SAVED and value not in (None, "") and _has_effect(name, row):
                match[name] = value
        if row["device"] != "gpu":
            match["cpu"] = row["environment.cpu"]
        elif gpu := gpu_name(row):
            match["gpu"] = gpu
        value = float(f"{result.throughput_per_device:.6g}")
        source = f"{result.id}, {result.created[:10]}"
        entries[str(match)] = {"match": match, "value": value, "source": source}
    with file.open("x", encoding="utf-8") as stream:
        YAML().dump([*entries.values()], stream)
