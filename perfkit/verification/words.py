"""The work equivalence of frameworks in words and rows."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfkit.config import Config
from perfkit.frameworks import FRAMEWORKS
from perfkit.models import MODELS
from perfkit.request.resolve import resolve
from perfkit.results.schema import Result
from perfkit.text.format import number
from perfkit.text.language import gettext as _
from perfkit.text.terminal import WIDTH
from perfkit.verification.stored import Against, Check, Side, Verification, verifications_of

PRECISIONS = {"fp32": "float32", "fp64": "float64"}


@dataclass(frozen=True)
class Compared:
    """A framework that a measurement's framework was compared with, and the result."""

    verification: Verification
    partner: Side
    against: Against


def compared(outputs: Path, result: Result, left_out: list[str]) -> list[Compared]:
    """The newest comparison with each other framework."""
    found: dict[str, Compared] = {}
    for verification, side in verifications_of(outputs, result, left_out):
        for against in verification.against:
            if side in (verification.base, against.side):
                partner = against.side if side == verification.base else verification.base
                one = Compared(verification, partner, against)
                found.setdefault(side_words(partner), one)
    return list(found.values())


def side_words(side: Side) -> str:
    name = FRAMEWORKS[side.framework].name
    return ", ".join(filter(None, [f"{name} {side.version}", side.execution, side.layout]))


def check_words(check: Check, steps: int) -> str:
    """The name of a check."""
    words = {
        "parameters": _("Parameters"),
        "multiply_adds": _("Multiply-adds, forward pass"),
        "training_flops": _("FLOPs, forward and backward pass"),
        "first_loss": _("Loss, step 1"),
        "losses": _("Loss, worst step"),
        "gradients": _("Gradients, step 1"),
        "first_update": _("Weight update, step 1"),
        "last_update": _("Weight update, step %(steps)d"),
    }
    return words[check.name] % {"steps": steps}


def figures(check: Check) -> tuple[str, str, str, str]:
    """The values of base and other, their difference, and the tolerance."""
    base, other = (_figure(check, value) for value in (check.base, check.other))
    difference = "–" if check.difference is None else f"{check.difference:.1e}"
    if not check.difference and check.difference is not None:
        difference = "0"
    return base, other, difference, f"{check.allowed:g}"


def _figure(check: Check, value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.10f}" if "loss" in check.name else number(value, 7)


def command(one: Config, other: Config | None = None) -> str:
    """The `perfkit verify` command for these two or, of one, for its framework and another;
    empty if no other framework does this work."""
    usual = resolve({"model": one.model})
    words = ["perfkit", "verify", one.model]
    partners = [
        name
        for name, framework in FRAMEWORKS.items()
        if name != one.framework
        and one.optimizer in framework.supports.get("optimizer", (one.optimizer,))
    ]
    if not partners:
        return ""
    named = [_named(one), _named(other) if other else partners[0]]
    if other or named[0] != one.framework:
        words += ["--frameworks", ",".join(named)]
    for name in ("image_size", "sequence_length", "optimizer", "outputs_dir"):
        if (value := getattr(one, name)) != getattr(usual, name):
            words += ["-p", name, str(value)]
    return shlex.join(words)


def _named(config: Config) -> str:
    """A framework as `--frameworks` takes it."""
    usual = resolve(config.model_dump(include={"model", "framework"}))
    ways = [
        name
        for name in ("execution", "layout")
        if getattr(config, name) != getattr(usual, name)
    ]
    return ":".join([config.framework, *(getattr(config, name) for name in ways)])


def text(verification: Verification) -> str:
    """A verification as text, in lines of WIDTH at most."""
    v = verification
    size = f"{v.image_size} pixels" if v.image_size else f"{v.sequence_length} tokens"
    console = Console(width=WIDTH, highlight=False, markup=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(f"{MODELS[v.model].name}, {size}, batch {v.batch_size}, {v.optimizer}")
        console.print(f"Base: {side_words(v.base)}")
        for against in v.against:
            console.print(f"\n{side_words(against.side)}")
            console.print(_table(against, v.steps))
            for line in _amiss(against, v.steps):
                console.print(line)
            console.print("The same work." if against.agreed else "NOT the same work.")
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _table(against: Against, steps: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in ("base", "other", "difference", "tolerance"):
        table.add_column(heading, justify="right", no_wrap=True)
    precision = None
    for check in against.checks:
        if check.precision not in (None, precision):
            precision = check.precision
            table.add_row(Text(f"in {PRECISIONS[precision]}"))
        indent = "  " if check.precision else ""
        cells = [f"{indent}{check_words(check, steps)}", *figures(check)]
        table.add_row(*map(Text, cells), style=None if check.agreed else "bold red")
    return table


def _amiss(against: Against, steps: int) -> Iterator[str]:
    for check in against.checks:
        if not check.agreed:
            kind = f", {PRECISIONS[check.precision]}" if check.precision else ""
            yield f"! {check_words(check, steps)}{kind}: {check.where}"
