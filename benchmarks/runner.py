"""Runs figures one after the other and stores each immediately, since a later one may fail.

A figure is a function that prints its progress and returns its Numbers. Its name is the
function's; the function's docstring is its description.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from page import write_page
from stored import Figure, Number, figures_file, read_figures, store_figure

from perfkit.config import ROOT, portable, resolved_path
from perfkit.report.site import write_index
from perfkit.request.checks import read_environment
from perfkit.results.store import ResultError

TESTS = str(ROOT / "tests")
SAMPLES = Path(os.environ.get("SAMPLES", ROOT / "data" / "samples"))
VARIABLES = {"PAIRS": "10", "SIZES": "100 1000 10000", "COUNTS": "20"}
VARIABLES |= {"MEASUREMENTS": "1000", "PIXELS": "224"}
"""Environment variables that set the length of figures, and their defaults."""

FigureFunction = Callable[[], list[Number]]
Side = Callable[[], float]


def counts(variable: str) -> list[int]:
    """Return the variable's value: integers of at least 1. Exits for an invalid value."""
    text = os.environ.get(variable, VARIABLES[variable])
    if not re.fullmatch(r"\s*[1-9]\d*(\s+[1-9]\d*)*\s*", text):
        example = f"{variable}={VARIABLES[variable]!r}"
        sys.exit(f"{variable}={text!r}: must be integers of at least 1, such as {example}")
    return [int(word) for word in text.split()]


PAIRS, PIXELS = counts("PAIRS")[0], counts("PIXELS")[0]
"""Runs per figure (fewer for long ones, more for transparency), and the training image size."""


def main(figures: dict[FigureFunction, float]) -> None:
    """Run the figures named on the command line, or all, and write their page. `figures` maps
    each to its minutes on 2 cores with PAIRS=10. Exits with 1 if one failed."""
    known = {figure.__name__: figure for figure in figures}
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=", ".join(known))
    parser.add_argument("--outputs", default="outputs", help="where bench/ is written")
    given = parser.parse_args()
    names = given.names or [*known]
    if unknown := set(names) - set(known):
        parser.error(f"no such figure: {', '.join(unknown)}; there are: {', '.join(known)}")
    outputs = resolved_path(given.outputs)
    try:
        figures_file(outputs).parent.mkdir(parents=True, exist_ok=True)
        read_figures(outputs)
    except (OSError, ResultError) as error:
        parser.error(f"{error}\nFigures are added to that file: move it away")
    failed = []
    try:
        for number, name in enumerate(names, 1):
            minutes = f"{figures[known[name]]:g} min on 2 cores with PAIRS=10"
            print(f"\n[{number}/{len(names)}] {name}: about {minutes}; here PAIRS={PAIRS}")
            print(textwrap.fill(meaning(known[name]), 79), flush=True)
            if not run(known[name], outputs):
                failed.append(name)
    except KeyboardInterrupt:
        print("Interrupted; the figures made so far are stored.")
        failed.append(f"{name} (interrupted)")
    if figures_file(outputs).exists():
        print(write_page(outputs))
        write_index(outputs)
    sys.exit(f"Failed: {', '.join(failed)}" if failed else 0)


def meaning(function: FigureFunction) -> str:
    return " ".join((function.__doc__ or "").split())


def run(function: FigureFunction, outputs: Path) -> bool:
    """Make and store one figure, or the reason of its failure; return whether it succeeded."""
    made: dict[str, object] = {"about": meaning(function), "command": command(function)}
    made |= {"environment": read_environment("paddle", SAMPLES), "created": datetime.now(UTC)}
    began = time.monotonic()
    try:
        made["numbers"] = function()
    # After any failure the other figures are still made.
    except Exception as error:
        traceback.print_exc()
        made["failure"] = reason(error)
    figure = Figure.model_validate(made | {"seconds": time.monotonic() - began})
    try:
        store_figure(outputs, function.__name__, figure)
    except (OSError, ResultError) as error:
        print(f"  not stored: {error}")
        return False
    return figure.failure is None


def reason(error: Exception) -> str:
    """Return a failure as one line; for a failed command, with its last line of output."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError):
        output = error.stderr or b""
        output = output if isinstance(output, str) else output.decode(errors="replace")
        last = output.strip().splitlines()[-1:]
        text = ": ".join([f"a command ended with {error.returncode}", *last])
    return textwrap.shorten(portable(text), 300, placeholder=" …")


def command(function: FigureFunction) -> str:
    """Return the command that makes only this figure, with the variables that were set."""
    given = [f"{v}={shlex.quote(os.environ[v])}" for v in VARIABLES if v in os.environ]
    script = Path(sys.argv[0]).resolve()
    place = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return " ".join([*given, ".venv/bin/python", str(place), function.__name__])


def paired(name: str, one: Side, other: Side, unit: str, pairs: int = PAIRS) -> Number:
    """Measure pairs and return the median of their ratios. The two run interleaved, A B B A …,
    because the speed of a shared machine drifts."""
    values = []
    for pair in range(pairs):
        turns = (one, other) if pair % 2 == 0 else (other, one)
        got = {turn: turn() for turn in turns}
        values.append((got[one], got[other]))
        ratio = got[one] / got[other]
        print(f"  {got[one]:9.4g} / {got[other]:9.4g} = {ratio:.4f}", flush=True)
    return printed(Number.of_pairs(name, values, unit))


def printed(number: Number) -> Number:
    """Print the number and return it."""
    text = f"  {number.name}: {number.value:.4g} {'' if number.pairs else number.unit}"
    text = f"{text.rstrip()} (n={number.n}"
    if number.pairs:
        text += "; medians {:.4g} and {:.4g} ".format(*number.medians) + number.unit
    if number.interval:
        low, high = number.interval
        text += f"; {number.interval_level:.1%} interval {low:.4g} to {high:.4g}"
    print(f"{text})", flush=True)
    return number
