"""Verification that frameworks do the same work: each trains the same steps, and their results
are compared, stored and reported.

    outputs/verified/<model>-<frameworks>-<digest>.json    a Verification, replaced atomically

A verification holds for measurements of the same model, size, optimizer, layout, execution,
versions and code of this suite.
"""

import hashlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf, isfinite, prod, sqrt
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from filelock import FileLock, Timeout
from pydantic import Field

from perfkit.core.config import FIELDS, Config, FrameworkName, ModelName, Protocol, select
from perfkit.core.driver.repeat import TaskError, perform
from perfkit.core.format import number
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import (
    find_model,
    flops_with_backward,
    model_named,
    model_of,
    multiply_adds,
)
from perfkit.core.paths import portable, resolved_path
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan, typed
from perfkit.core.request.requirements import read_environment
from perfkit.core.request.resolve import resolve
from perfkit.core.results.base import NonNegative, Stored
from perfkit.core.results.identity import Reading
from perfkit.core.results.schema import Result
from perfkit.core.results.store import ResultError, make_folder, read_as, write_atomically
from perfkit.core.worker.trace import COPIES, STEPS
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import gettext_noop
from perfkit.report.text.names import stored_value
from perfkit.report.text.terminal import tabulated, wrapped

FOLDER = "verified"
SCHEMA_VERSION: Literal[1] = 1
TRACES, LOCK = ".traces-", ".lock"
FIXED = {"device": "cpu", "input": "synthetic", "protocol": "quick"}
FACTS = ("cpu", "suite", "suite_source", "suite_commit", "suite_modified")
WORK = ("model", "optimizer", "image_size", "sequence_length")
SHOWN = 3

Precision = Literal["fp32", "fp64"]
Tensors = Literal["gradients", "first_update", "last_update"]
Name = (
    Literal["parameters", "multiply_adds", "training_flops", "first_loss", "losses"] | Tensors
)

PRECISIONS = {None: "", "fp32": "float32", "fp64": "float64"}
NAMES: dict[Name, str] = {
    "parameters": gettext_noop("Parameters"),
    "multiply_adds": gettext_noop("Multiply-adds, forward pass"),
    "training_flops": gettext_noop("FLOPs, forward and backward pass"),
    "first_loss": gettext_noop("Loss, step 1"),
    "losses": gettext_noop("Loss, worst step"),
    "gradients": gettext_noop("Gradients, step 1"),
    "first_update": gettext_noop("Weight update, step 1"),
    "last_update": gettext_noop("Weight update, step %(steps)d"),
}
ALLOWED: dict[Precision, dict[str, float]] = {
    "fp64": {"loss": 1e-9, "tensors": 1e-6},
    "fp32": {"loss": 1e-4, "tensors": 0.15},
}
"""Tolerances of relative differences.

In float64, differences come from tensors stored as float32, which rounds by up to 6e-8 of a
value, and from the few factors that frameworks hold as float32, such as Paddle's learning rates
and apparently the 1/49 in the gradient of ResNet-50's average pooling: at most 1e-7 for the
three models.

In float32, a rounding error that changes the sign of a ReLU's input turns its gradient on or
off, and batch norm spreads the change: changing the weights of ResNet-50 by 6e-8 changes its
exact gradient by 1 %, and two correct frameworks differ by 5 %. So float32 excludes gross
errors in the measured precision, and float64 shows that the work is the same."""
NOTHING = 1e-3
"""Smallest reference size of a tensor, as a share of the largest root mean square. Tensors that
are 0 but for rounding, such as the gradient of a bias that attention's softmax cancels, have no
size of their own."""


class Side(Stored):
    """A framework and its execution mode."""

    framework: FrameworkName
    """training framework"""
    version: str
    """its version"""
    execution: Literal["dynamic", "static"]
    """how the graph is executed"""
    layout: Literal["NCHW", "NHWC"] | None
    """memory layout of images; None for sequences"""

    def __str__(self) -> str:
        name = f"{FRAMEWORKS[self.framework].display_name} {self.version}"
        return ", ".join(filter(None, [name, self.execution, self.layout]))


class Check(Stored):
    """A quantity in which two sides must agree. The check passes if its difference is known and
    not larger than allowed."""

    name: Name
    """the quantity"""
    precision: Precision | None
    """precision of the training; None if irrelevant"""
    base: int | float | None
    """the base's value: a count, a loss or a Euclidean norm; None if not finite"""
    other: int | float | None
    """the other side's value"""
    difference: NonNegative | None
    """relative difference, for parameters the number of tensors that differ; None if it can't
    be computed"""
    allowed: NonNegative
    """largest difference with which the check passes"""
    where: str
    """tensor or step with the largest difference, or the error"""

    @property
    def agreed(self) -> bool:
        return self.difference is not None and self.difference <= self.allowed


class Against(Stored):
    """A side and its checks against the base."""

    side: Side
    """the other side"""
    checks: Annotated[list[Check], Field(min_length=1)]
    """each quantity, in each precision"""

    @property
    def agreed(self) -> bool:
        return all(check.agreed for check in self.checks)


class Verification(Stored):
    """The result of `perfkit verify`."""

    schema_version: Literal[1]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    model: ModelName
    """the model"""
    optimizer: Literal["momentum", "adamw", "lamb"]
    """the optimizer"""
    image_size: int | None
    """height and width of the images, pixels; None for sequences"""
    sequence_length: int | None
    """tokens per sequence; None for images"""
    batch_size: int
    """samples in a step"""
    seed: int
    """random seed of weights and batch"""
    steps: Annotated[int, Field(ge=1)]
    """number of steps"""
    base: Side
    """the side with which all others are compared"""
    against: Annotated[list[Against], Field(min_length=1)]
    """each other side, with its checks"""
    environment: dict[str, Reading]
    """the CPU, and the suite's version, source and commit"""

    @property
    def agreed(self) -> bool:
        return all(against.agreed for against in self.against)

    @property
    def sides(self) -> list[Side]:
        return [self.base, *(against.side for against in self.against)]

    @property
    def file_name(self) -> str:
        """The name, which a repetition of the same verification shares and so replaces."""
        work = self.model_dump(include={*WORK, "batch_size", "seed", "steps"})
        work["sides"] = [side.model_dump() for side in self.sides]
        work["suite_source"] = self.environment["suite_source"].value
        digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:8]
        names = "-".join(side.framework for side in self.sides)
        return f"{self.model}-{names}-{digest}.json"

    def agree(self, *sides: Side) -> bool:
        """Return whether all of these do the same work as the base, and so as each other."""
        return all(against.agreed for against in self.against if against.side in sides)

    def side_of(self, result: Result) -> Side | None:
        """Return the side of this measurement; None if the verification does not hold for it.
        Builds of a version (2.13.0+cpu, 2.13.0+cu126) are the same side."""
        config, fact = result.config, "suite_source"
        source = self.environment[fact].value if fact in self.environment else None
        same = all(getattr(config, name) == getattr(self, name) for name in WORK)
        if not same or source is None or source != result.fact(fact):
            return None
        version = result.fact(FRAMEWORKS[config.framework].facts[0])
        how = (config.framework, config.execution, config.layout, _release(version))
        for side in self.sides:
            if how == (side.framework, side.execution, side.layout, _release(side.version)):
                return side
        return None


def _release(version: Any) -> str:
    return str(version).partition("+")[0]


def sides(model: str, named: str | None, values: Mapping[str, Any]) -> list[Config]:
    """Return the configurations to compare, the base first. Raises RequestError.

    `named` is a list such as `paddle,torch:static`: frameworks, each with execution, layout and
    interpreter path where they differ from the default. None means all installed frameworks
    that support the model and the optimizer."""
    problems = []
    for name in values:
        if name in ("framework", "execution", "layout", "python"):
            problems.append(f"{name}: set it by --frameworks, as in paddle,torch:static:NCHW")
        elif name in FIELDS and name not in (takes := select(verified=True)):
            problems.append(f"{name}: fixed in a verification; it takes {', '.join(takes)}")
    facts = find_model(model)
    usual = facts.optimizers[0] if facts else ""
    work = {"model": model, "optimizer": values.get("optimizer") or usual}
    able = [name for name, f in FRAMEWORKS.items() if f.version and f.takes(**work)]
    words = [side.split(":") for side in (able if named is None else named.split(","))]
    if len(words) < 2:
        problems.append(
            f"--frameworks: at least two are needed; installed for this work: {', '.join(able)}"
        )
    configs: list[Config] = []
    for framework, *options in words:
        settings: dict[str, Any] = {"framework": framework}
        for word in options:
            name = "layout" if word in ("NCHW", "NHWC") else "execution"
            name = "python" if "/" in word else name
            settings[name] = typed(name, word)
        try:
            config = plan(model, FIXED | dict(values) | settings).config
        except RequestError as error:
            problems += [problem for problem in error.problems if problem not in problems]
            continue
        if config in configs:
            problems.append(f"--frameworks: {':'.join([framework, *options])} is given twice")
        configs.append(config)
    if problems:
        raise RequestError(problems)
    return configs


def verify(configs: Sequence[Config], say: Callable[[str], None]) -> tuple[Verification, Path]:
    """Compare the work of the first configuration with each other's and store the verification.
    `say` is called with each configuration before it runs.

    COPIES copies of the parameters temporarily take disk space. Raises TaskError if a framework
    fails or the disk space is missing.
    """
    base = configs[0]
    folder = resolved_path(base.outputs_dir) / FOLDER
    make_folder(folder)
    seen: list[tuple[Side, Trace]] = []
    with _shared_folder(folder) as shared:
        needed = COPIES * 4 * model_of(base).parameters
        if (free := shutil.disk_usage(folder).free) < needed:
            raise TaskError(
                f"disk_full: {portable(str(folder))} has {free / 1e9:.1f} GB free, and the "
                f"verification temporarily needs {needed / 1e9:.1f} GB; free some space, or "
                "set another folder: -p outputs_dir FOLDER"
            )
        for place, config in enumerate(configs):
            framework = FRAMEWORKS[config.framework]
            say(
                ", ".join(
                    filter(None, [framework.display_name, config.execution, config.layout])
                )
            )
            raw = shared / str(place)
            (events,) = perform(config, Protocol.named("quick"), "verify", raw)
            environment = read_environment(config.framework, folder, config.interpreter)
            version = environment[framework.facts[0]].value
            how = config.model_dump(include={"framework", "execution", "layout"})
            seen.append((Side(version=str(version), **how), Trace.of(events)))
    (side, trace), *others = seen
    verification = Verification(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **base.model_dump(include={*Verification.model_fields}),
        steps=STEPS,
        base=side,
        against=[Against(side=s, checks=judge(trace, other, base)) for s, other in others],
        environment={name: environment[name] for name in FACTS},
    )
    path = folder / verification.file_name
    write_atomically(path, verification.model_dump_json(indent=1))
    return verification, path


@contextmanager
def _shared_folder(folder: Path) -> Iterator[Path]:
    """Make a temporary folder below `folder` for the traces, locked while in use. Unlocked
    folders, left by killed verifications, are removed first."""
    for lock in folder.glob(f"{TRACES}*/{LOCK}"):
        with suppress(Timeout), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=TRACES, dir=folder) as shared,
        FileLock(Path(shared) / LOCK),
    ):
        yield Path(shared)


Shapes = dict[str, tuple[int, ...]]
Norms = tuple[float, float, float]


@dataclass(frozen=True)
class Trace:
    """A side's report: parameter shapes by name, and multiply-adds of a batch's forward pass.
    If the base's weights fit, `losses` by precision, and `distances` to the base's tensors by
    precision and kind of tensor: Euclidean norms of difference, base's and own tensor."""

    parameters: Shapes
    multiply_adds: int
    losses: dict[str, list[float]] = field(default_factory=dict)
    distances: dict[tuple[str, str], dict[str, Norms]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> "Trace":
        """Return the trace in the raw events of perfkit.core.worker.trace."""
        found = cls({}, 0)
        for event in events:
            if event["event"] == "work":
                shapes = {name: tuple(shape) for name, shape in event["parameters"].items()}
                found = replace(found, parameters=shapes, multiply_adds=event["multiply_adds"])
            elif event["event"] == "loss":
                found.losses.setdefault(event["precision"], []).append(event["loss"])
            elif event["event"] == "distances":
                found.distances[event["precision"], event["of"]] = event["tensors"]
        return found


Found = tuple[Sequence[float | None], float | None, str]
"""Values of the two sides, their difference, and where it is, as in a Check."""


def judge(base: Trace, other: Trace, config: Config) -> list[Check]:
    """Return all checks of `other` against `base`, the first side, on batches of `config`. If
    the parameters differ, nothing was trained, and losses and tensors are not checked."""
    found: dict[tuple[Name, Precision | None], Found] = {}
    found["parameters", None] = shapes = _parameters(base.parameters, other.parameters)
    size, right = config.batch_size, multiply_adds(config)
    counts = [count / size for count in (base.multiply_adds, other.multiply_adds)]
    counts = [int(count) if count.is_integer() else count for count in counts]
    found["multiply_adds", None] = _arithmetic(counts, right)
    flops = [flops_with_backward(config, count) for count in (*counts, right)]
    found["training_flops", None] = _arithmetic(flops[:2], flops[2])
    for precision in [*ALLOWED] if shapes[1] == 0 else []:
        losses = [trace.losses.get(precision, []) for trace in (base, other)]
        found["first_loss", precision] = _losses(*(values[:1] for values in losses))
        found["losses", precision] = _losses(*losses)
        for name in get_args(Tensors):
            distances = other.distances.get((precision, name), {})
            found[name, precision] = _tensors(distances, base.parameters, precision)
    return [
        Check(
            name=name,
            precision=precision,
            base=_known(values[0]),
            other=_known(values[1]),
            difference=difference,
            allowed=ALLOWED[precision]["loss" if "loss" in name else "tensors"]
            if precision
            else 0,
            where=where,
        )
        for (name, precision), (values, difference, where) in found.items()
    ]


def _known(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _parameters(base: Shapes, other: Shapes) -> Found:
    """Compare names and shapes; the difference is the number of differing tensors."""
    differing = sorted(name for name in base | other if base.get(name) != other.get(name))
    shown = [f"{k} {_shape(base.get(k))} | {_shape(other.get(k))}" for k in differing]
    more = [f"and {len(shown) - SHOWN} more"] if shown[SHOWN:] else []
    where = "; ".join([*shown[:SHOWN], *more]) or f"{len(base)} tensors"
    return [sum(map(prod, shapes.values())) for shapes in (base, other)], len(differing), where


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " x ".join(map(str, shape)) or "scalar"


def _arithmetic(counts: Sequence[float], right: float) -> Found:
    """Compare both sides' counts with `right`, which follows from the model's architecture."""
    difference = max(abs(count - right) for count in counts) / right
    return counts, difference, f"{right:,} by the model's architecture" if difference else ""


def _losses(base: list[float], other: list[float]) -> Found:
    """Compare the losses of the step at which they differ most."""
    if not base or len(base) != len(other):
        return (None, None), None, f"{len(base)} and {len(other)} steps were trained"
    pairs = {f"step {n}": pair for n, pair in enumerate(zip(base, other, strict=True), 1)}
    where, worst = _worst({step: (abs(x - y), abs(x)) for step, (x, y) in pairs.items()})
    return pairs[where], worst, where


def _tensors(found: Mapping[str, Norms], shapes: Shapes, precision: Precision) -> Found:
    """Compare the worst tensor in float64, all tensors together in float32; see ALLOWED."""
    if missing := sorted(shapes.keys() - found.keys()):
        return (None, None), None, f"{missing[0]} was not reported"
    apart, base, other = (sqrt(sum(n[i] ** 2 for n in found.values())) for i in range(3))
    roots = {name: sqrt(prod(shape)) for name, shape in shapes.items()}
    least = NOTHING * max(found[name][1] / root for name, root in roots.items())
    where, worst = _worst(
        {k: (found[k][0], max(found[k][1], least * root)) for k, root in roots.items()}
    )
    if not base:
        return (base, other), None, "all are 0: there is nothing to compare"
    if precision == "fp32" and worst is not None:
        worst = apart / base
    return (base, other), worst, where


def _worst(apart: Mapping[str, tuple[float, float]]) -> tuple[str, float | None]:
    """Return the name of the largest difference relative to its size, and that share; None if
    it is not finite. `apart` has (difference, size) by name."""
    shares = {k: 0.0 if a == 0 else a / size if size else inf for k, (a, size) in apart.items()}
    where = max(shares, key=lambda name: (not isfinite(shares[name]), shares[name]))
    return where, _known(shares[where])


def read_verifications(outputs: Path, left_out: list[str]) -> list[Verification]:
    """Return the verifications stored under `outputs`, newest first; the reasons why others
    can't be read are added to `left_out`."""
    found = []
    for path in sorted((outputs / FOLDER).glob("*.json")):
        try:
            found.append(read_as(Verification, path, SCHEMA_VERSION))
        except ResultError as error:
            left_out.append(str(error))
    return sorted(found, key=lambda verification: verification.created, reverse=True)


def verification_of(
    outputs: Path, a: Result, b: Result
) -> tuple[Verification, Side, Side] | None:
    """Return the newest verification that holds for both measurements, and their sides; None
    if there is none or both are the same side."""
    for verification in read_verifications(outputs, []):
        side_a, side_b = verification.side_of(a), verification.side_of(b)
        if side_a and side_b and side_a != side_b:
            return verification, side_a, side_b
    return None


def comparisons_of(
    outputs: Path, result: Result, left_out: list[str]
) -> list[tuple[Verification, Side, Against]]:
    """Return the newest comparison of a measurement's framework with each other framework: the
    verification, the other's side, and the checks. The reasons why verifications can't be read
    are added to `left_out`."""
    found: dict[str, tuple[Verification, Side, Against]] = {}
    for verification in read_verifications(outputs, left_out):
        side = verification.side_of(result)
        for against in verification.against:
            if side in (verification.base, against.side):
                partner = against.side if side == verification.base else verification.base
                found.setdefault(str(partner), (verification, partner, against))
    return list(found.values())


def command(config: Config, other: Config | None = None) -> str:
    """Return the `perfkit verify` command for the frameworks of both configurations or, without
    `other`, for `config`'s and another; empty if no other framework supports this work."""
    usual = resolve({"model": config.model})
    words = ["perfkit", "verify", config.model]
    work = {"model": config.model, "optimizer": config.optimizer}
    partners = [k for k, f in FRAMEWORKS.items() if k != config.framework and f.takes(**work)]
    if not partners:
        return ""
    named = [_named(config), _named(other) if other else partners[0]]
    if other or named[0] != config.framework:
        words += ["--frameworks", ",".join(named)]
    for name in ("image_size", "sequence_length", "optimizer", "outputs_dir"):
        if (value := getattr(config, name)) != getattr(usual, name):
            words += ["-p", name, str(value)]
    return shlex.join(words)


def _named(config: Config) -> str:
    """Return a configuration's framework in the syntax of `--frameworks`."""
    usual = resolve(config.model_dump(include={"model", "framework"}))
    settings = {config.execution: usual.execution, config.layout: usual.layout}
    differing = [str(value) for value, default in settings.items() if value != default]
    return ":".join([config.framework, *differing, *filter(None, [config.python])])


def rows(against: Against, steps: int) -> list[list[str]]:
    """Return each check as text: name, precision, base's and other's value, their difference,
    the tolerance, whether they agree, where the difference is largest."""
    shown = []
    for check in against.checks:
        difference = f"{check.difference:.1e}" if check.difference else "0"
        shown.append(
            [
                _(NAMES[check.name]) % {"steps": steps},
                PRECISIONS[check.precision],
                *(_figure(check.name, value) for value in (check.base, check.other)),
                "–" if check.difference is None else difference,
                f"{check.allowed:g}",
                stored_value(check.agreed),
                check.where,
            ]
        )
    return shown


def _figure(name: Name, value: float | None) -> str:
    if value is None or isinstance(value, int):
        return "–" if value is None else f"{value:,}"
    return f"{value:.10f}" if "loss" in name else number(value, 7)


def text(verification: Verification) -> str:
    """Return a verification as text in lines of at most 80 columns."""
    v = verification
    size = f"{v.image_size} pixels" if v.image_size else f"{v.sequence_length} tokens"
    lines = [f"{model_named(v.model).name}, {size}, batch {v.batch_size}, {v.optimizer}"]
    lines.append(f"Base: {v.base}")
    for against in v.against:
        shown: list[list[str]] = []
        amiss, part, checks = [], "", zip(against.checks, rows(against, v.steps), strict=True)
        for check, (name, precision, *values, _agrees, where) in checks:
            if precision != part:
                shown.append([f"in {precision}", "", "", "", ""])
                part = precision
            shown.append([f"  {name}" if precision else name, *values])
            if not check.agreed:
                named = f"{name}, {precision}" if precision else name
                amiss.append(wrapped(f"! {named}: {where}"))
        headings = ("", "base", "other", "difference", "tolerance")
        lines += ["", str(against.side), *tabulated(shown, headings), *amiss]
        lines.append("The same work." if against.agreed else "NOT the same work.")
    return "\n".join(lines)
