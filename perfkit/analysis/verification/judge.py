"""Compares what two frameworks did in the same training: parameters, arithmetic, losses,
gradients and weight updates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod, sqrt
from typing import Any, NamedTuple, get_args

from perfkit.analysis.verification.stored import (
    ComparedQuantity,
    Precision,
    Quantity,
    TensorQuantity,
)
from perfkit.measuring.work import ModelWork
from perfkit.training.models import flops_with_backward, multiply_adds


class Tolerances(NamedTuple):
    """Largest relative differences of two correct frameworks."""

    loss: float
    tensors: float


TOLERANCES: dict[Precision, Tolerances] = {
    "fp64": Tolerances(loss=1e-9, tensors=1e-6),
    "fp32": Tolerances(loss=1e-4, tensors=0.15),
}
"""In float64, differences come from tensors stored as float32, which rounds by up to 6e-8 of a
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
LISTED_TENSORS = 3
"""Most differing tensors that are named."""

Shape = tuple[int, ...]
Shapes = dict[str, Shape]


class TensorNorms(NamedTuple):
    """Euclidean norms of a tensor in two frameworks, and of its difference."""

    difference: float
    base: float
    other: float


@dataclass
class Trace:
    """What a framework's training did: parameter shapes by name, and multiply-adds of a batch's
    forward pass. If the base's weights fit, also `losses` by precision, and `distances` to the
    base's tensors by precision and quantity."""

    parameters: Shapes = field(default_factory=dict)
    multiply_adds: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    distances: dict[tuple[str, str], dict[str, TensorNorms]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> "Trace":
        """Return the trace in the raw events of perfkit.training.trace."""
        trace = cls()
        for event in events:
            match event["event"]:
                case "work":
                    trace.multiply_adds = event["multiply_adds"]
                    for name, shape in event["parameters"].items():
                        trace.parameters[name] = tuple(shape)
                case "loss":
                    trace.losses.setdefault(event["precision"], []).append(event["loss"])
                case "distances":
                    distances = trace.distances[event["precision"], event["of"]] = {}
                    for name, norms in event["tensors"].items():
                        distances[name] = TensorNorms(*norms)
        return trace


def judge(base: Trace, other: Trace, work: ModelWork) -> list[ComparedQuantity]:
    """Return all quantities of `other` compared with the `base`, on batches of `work`. If the
    parameters differ, nothing was trained, and losses and tensors are not compared."""
    parameters = _compare_parameters(base.parameters, other.parameters)
    quantities = [parameters, *_compare_arithmetic(base, other, work)]
    if not parameters.agreed:
        return quantities
    for precision in TOLERANCES:
        base_losses = base.losses.get(precision, [])
        losses = other.losses.get(precision, [])
        first_losses = (base_losses[:1], losses[:1])
        quantities.append(_compare_losses("first_loss", precision, *first_losses))
        quantities.append(_compare_losses("losses", precision, base_losses, losses))
        for quantity in get_args(TensorQuantity):
            distances = other.distances.get((precision, quantity), {})
            quantities.append(_compare_tensors(quantity, precision, distances, base.parameters))
    return quantities


# Parameters.


def _compare_parameters(base: Shapes, other: Shapes) -> ComparedQuantity:
    """Compare names and shapes; the difference is the number of differing tensors."""
    differing = sorted(name for name in base | other if base.get(name) != other.get(name))
    return ComparedQuantity(
        name="parameters",
        precision=None,
        base=_parameter_count(base),
        other=_parameter_count(other),
        difference=len(differing),
        allowed=0,
        where=_differing_shapes(differing, base, other) or f"{len(base)} tensors",
    )


def _parameter_count(shapes: Shapes) -> int:
    return sum(prod(shape) for shape in shapes.values())


def _differing_shapes(names: Sequence[str], base: Shapes, other: Shapes) -> str:
    """Return the shapes of these tensors as text: `a.weight 4 x 2 | 2 x 4; and 3 more`."""
    parts = []
    for name in names[:LISTED_TENSORS]:
        shapes = f"{_shape_text(base.get(name))} | {_shape_text(other.get(name))}"
        parts.append(f"{name} {shapes}")
    if len(names) > LISTED_TENSORS:
        parts.append(f"and {len(names) - LISTED_TENSORS} more")
    return "; ".join(parts)


def _shape_text(shape: Shape | None) -> str:
    if shape is None:
        return "none"
    return " x ".join(map(str, shape)) or "scalar"


# Arithmetic.


def _compare_arithmetic(
    base: Trace, other: Trace, work: ModelWork
) -> tuple[ComparedQuantity, ComparedQuantity]:
    """Compare multiply-adds and FLOPs of a sample."""
    by_architecture = multiply_adds(work)
    base_count = _per_sample(base, work)
    other_count = _per_sample(other, work)
    forward = _compare_counts("multiply_adds", base_count, other_count, by_architecture)
    training = _compare_counts(
        "training_flops",
        flops_with_backward(work, base_count),
        flops_with_backward(work, other_count),
        flops_with_backward(work, by_architecture),
    )
    return forward, training


def _per_sample(trace: Trace, work: ModelWork) -> float:
    count = trace.multiply_adds / work.batch_size
    return int(count) if count.is_integer() else count


def _compare_counts(
    name: Quantity, base: float, other: float, by_architecture: float
) -> ComparedQuantity:
    """Compare both counts with the one that follows from the model's architecture."""
    farthest = max(abs(base - by_architecture), abs(other - by_architecture))
    where = f"{by_architecture:,} by the model's architecture" if farthest else ""
    return ComparedQuantity(
        name=name,
        precision=None,
        base=base,
        other=other,
        difference=farthest / by_architecture,
        allowed=0,
        where=where,
    )


# Losses and tensors.


def _compare_losses(
    name: Quantity, precision: Precision, base: Sequence[float], other: Sequence[float]
) -> ComparedQuantity:
    """Compare the losses of the step at which they differ most."""
    allowed = TOLERANCES[precision].loss
    if not base or len(base) != len(other):
        problem = f"{len(base)} and {len(other)} steps were trained"
        return _incomparable(name, precision, allowed, problem)
    losses = {}
    differences = {}
    for number, (base_loss, other_loss) in enumerate(zip(base, other, strict=True), 1):
        step = f"step {number}"
        losses[step] = (base_loss, other_loss)
        differences[step] = _relative(abs(base_loss - other_loss), abs(base_loss))
    where = _largest(differences)
    base_loss, other_loss = losses[where]
    return ComparedQuantity(
        name=name,
        precision=precision,
        base=_finite(base_loss),
        other=_finite(other_loss),
        difference=_finite(differences[where]),
        allowed=allowed,
        where=where,
    )


def _compare_tensors(
    name: TensorQuantity,
    precision: Precision,
    distances: Mapping[str, TensorNorms],
    shapes: Shapes,
) -> ComparedQuantity:
    """Compare the worst tensor in float64, all tensors together in float32; see TOLERANCES."""
    allowed = TOLERANCES[precision].tensors
    missing = sorted(shapes.keys() - distances.keys())
    if missing:
        return _incomparable(name, precision, allowed, f"{missing[0]} was not reported")
    total = TensorNorms(*(_norm(norms) for norms in zip(*distances.values(), strict=True)))
    differences = _differences_of_tensors(distances, shapes)
    where = _largest(differences)
    difference = _finite(differences[where])
    if precision == "fp32" and difference is not None and total.base:
        difference = total.difference / total.base
    if total.base == 0:
        difference, where = None, "all are 0: there is nothing to compare"
    return ComparedQuantity(
        name=name,
        precision=precision,
        base=_finite(total.base),
        other=_finite(total.other),
        difference=difference,
        allowed=allowed,
        where=where,
    )


def _differences_of_tensors(
    distances: Mapping[str, TensorNorms], shapes: Shapes
) -> dict[str, float]:
    """Return each tensor's difference relative to its size, which is at least NOTHING of the
    largest root mean square."""
    root_counts = {name: sqrt(prod(shape)) for name, shape in shapes.items()}
    mean_squares = [distances[name].base / root for name, root in root_counts.items()]
    smallest = NOTHING * max(mean_squares)
    differences = {}
    for name, root in root_counts.items():
        norms = distances[name]
        differences[name] = _relative(norms.difference, max(norms.base, smallest * root))
    return differences


def _incomparable(
    name: Quantity, precision: Precision, allowed: float, problem: str
) -> ComparedQuantity:
    """Return a quantity whose difference is unknown, for the reason `problem`."""
    return ComparedQuantity(
        name=name,
        precision=precision,
        base=None,
        other=None,
        difference=None,
        allowed=allowed,
        where=problem,
    )


def _norm(norms: Iterable[float]) -> float:
    return sqrt(sum(norm**2 for norm in norms))


def _relative(difference: float, size: float) -> float:
    """Return a difference as a share of `size`; infinite if only the size is 0."""
    if difference == 0:
        return 0.0
    return difference / size if size else inf


def _largest(differences: Mapping[str, float]) -> str:
    """Return the name of the largest difference; infinity and NaN are larger than numbers."""

    def rank(name: str) -> tuple[bool, float]:
        return not isfinite(differences[name]), differences[name]

    return max(differences, key=rank)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
