"""Whether frameworks do the same work, judged by what each of them told of itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod, sqrt
from typing import Any

from perfkit.config import Config
from perfkit.models import flops_with_backward, multiply_adds
from perfkit.verification.stored import Check, Name, Precision

TENSORS: tuple[Name, ...] = ("gradients", "first_update", "last_update")

ALLOWED: dict[Precision, dict[str, float]] = {
    "fp64": {"loss": 1e-9, "tensors": 1e-6},
    "fp32": {"loss": 1e-4, "tensors": 0.15},
}
"""Of relative differences.

In float64, what is left are tensors kept as float32, which rounds by up to 6e-8 of a value, and
the few factors that frameworks hold as float32, as Paddle its rates and, by all signs, the
1/49 in the gradient of ResNet-50's average: 1e-7 at most for the three models.

In float32, a rounding that turns the sign of what a ReLU gets turns its gradient on or off, and
batch norm spreads that: moving the weights of ResNet-50 by 6e-8 of themselves moves its exact
gradient by 1 %, and two right frameworks are 5 % apart. So float32 tells that nothing is
grossly amiss where it is measured, and float64 that the work is the same."""
NOTHING = 1e-3
"""A tensor with less than this share of the largest root mean square is compared with that
share: what is 0 but for rounding, as the gradient of a bias that attention's softmax cancels,
has no size of its own."""
SHOWN = 3


@dataclass(frozen=True)
class Account:
    """What a witness told: shapes by name, multiply-adds of the batch's forward pass. Unless
    the first one's weights did not fit, the losses by precision and, by precision and what they
    are, how far tensors are from the first one's: Euclidean norms of difference, first, own."""

    parameters: dict[str, tuple[int, ...]]
    multiply_adds: int
    losses: dict[str, list[float]] = field(default_factory=dict)
    distances: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> "Account":
        """From the raw events of perfkit.worker.trace."""
        events = list(events)
        work = next(event for event in events if event["event"] == "work")
        losses: dict[str, list[float]] = {}
        for event in events:
            if event["event"] == "loss":
                losses.setdefault(event["precision"], []).append(event["loss"])
        return cls(
            {name: tuple(shape) for name, shape in work["parameters"].items()},
            work["multiply_adds"],
            losses,
            {
                (event["precision"], event["of"]): event["tensors"]
                for event in events
                if event["event"] == "distances"
            },
        )


def judged(base: Account, other: Account, config: Config) -> list[Check]:
    """All checks of `other` against `base`, the first witness, on batches of `config`. If the
    parameters differ, nothing was trained, and only what needs no training is checked."""
    checks = [_parameters(base, other), *_arithmetic(base, other, config)]
    if not checks[0].agreed:
        return checks
    for precision, allowed in ALLOWED.items():
        losses = base.losses.get(precision, []), other.losses.get(precision, [])
        checks.append(_losses("first_loss", precision, losses[0][:1], losses[1][:1], allowed))
        checks.append(_losses("losses", precision, *losses, allowed))
        for name in TENSORS:
            found = other.distances.get((precision, name), {})
            checks.append(_tensors(name, precision, found, base.parameters, allowed))
    return checks


def _parameters(base: Account, other: Account) -> Check:
    """Differing are names that one lacks, and shapes."""
    one, its = base.parameters, other.parameters
    differing = sorted(name for name in one | its if one.get(name) != its.get(name))
    told = [f"{name} {_shape(one.get(name))} | {_shape(its.get(name))}" for name in differing]
    more = [f"and {len(told) - SHOWN} more"] if told[SHOWN:] else []
    return Check(
        name="parameters",
        precision=None,
        base=sum(map(prod, one.values())),
        other=sum(map(prod, its.values())),
        difference=len(differing),
        allowed=0,
        where="; ".join([*told[:SHOWN], *more]) or f"{len(one)} tensors",
    )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " x ".join(map(str, shape)) or "scalar"


def _arithmetic(base: Account, other: Account, config: Config) -> Iterator[Check]:
    """Of a sample: multiply-adds as they were counted, and what follows for a training step."""
    expected = multiply_adds(config)
    counts = [_divided(one.multiply_adds, config.batch_size) for one in (base, other)]
    yield _exact("multiply_adds", counts, expected)
    flops = [flops_with_backward(config, count) for count in counts]
    yield _exact("training_flops", flops, flops_with_backward(config, expected))


def _divided(count: int, batch_size: int) -> int | float:
    return count / batch_size if count % batch_size else count // batch_size


def _exact(name: Name, counts: Sequence[int | float], expected: float) -> Check:
    """Both are to be what follows from the model's architecture."""
    return Check(
        name=name,
        precision=None,
        base=counts[0],
        other=counts[1],
        difference=max(abs(count - expected) for count in counts) / expected,
        allowed=0,
        where="" if set(counts) == {expected} else f"{expected:,} by the model's architecture",
    )


def _losses(
    name: Name,
    precision: Precision,
    one: list[float],
    its: list[float],
    allowed: Mapping[str, float],
) -> Check:
    """The step whose losses differ most."""
    if not one or len(one) != len(its):
        base, other, found = None, None, None
        where = f"{len(one)} and {len(its)} steps were trained"
    else:
        pairs = enumerate(zip(one, its, strict=True), 1)
        where, found = _most(
            {f"step {n}": _relative(abs(x - y), abs(x)) for n, (x, y) in pairs}
        )
        step = int(where.split()[1]) - 1
        base, other = one[step], its[step]
    return _check(name, precision, base, other, found, allowed["loss"], where)


def _tensors(
    name: Name,
    precision: Precision,
    found: Mapping[str, tuple[float, float, float]],
    shapes: Mapping[str, tuple[int, ...]],
    allowed: Mapping[str, float],
) -> Check:
    """In float64 the tensor that differs most, in float32 all of them together; see ALLOWED."""
    if lacking := sorted(shapes.keys() - found.keys()):
        where = f"not told of {lacking[0]}"
        return _check(name, precision, None, None, None, allowed["tensors"], where)
    apart, base, other = (sqrt(sum(one[i] ** 2 for one in found.values())) for i in range(3))
    roots = {one: sqrt(prod(shape)) for one, shape in shapes.items()}
    least = NOTHING * max(found[one][1] / root for one, root in roots.items())
    where, worst = _most(
        {
            one: _relative(found[one][0], max(found[one][1], least * root))
            for one, root in roots.items()
        }
    )
    if not base:
        where, worst = "all are 0: there is nothing to compare", None
    elif precision == "fp32" and worst is not None:
        worst = apart / base
    return _check(name, precision, base, other, worst, allowed["tensors"], where)


def _relative(apart: float, size: float) -> float:
    return 0.0 if apart == 0 else apart / size if size else inf


def _most(differences: Mapping[str, float]) -> tuple[str, float | None]:
    """Where the difference is largest, and what it is; None if one is no number."""
    for where, difference in differences.items():
        if not isfinite(difference):
            return where, None
    where = max(differences, key=lambda one: differences[one])
    return where, differences[where]


def _check(
    name: Name,
    precision: Precision,
    base: float | None,
    other: float | None,
    difference: float | None,
    allowed: float,
    where: str,
) -> Check:
    base, other = (x if x is not None and isfinite(x) else None for x in (base, other))
    return Check(
        name=name,
        precision=precision,
        base=base,
        other=other,
        difference=difference,
        allowed=allowed,
        where=where,
    )
