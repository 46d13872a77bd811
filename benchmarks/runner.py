"""Runs figures one after the other and stores each at once, since a later one may fail.

A figure is a function that prints its progress and returns its Numbers. It is named like the
function; the function's docstring says what it shows.
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
"""Environment variables that make figures shorter or longer, and their defaults."""

FigureFunction = Callable[[], list[Number]]
Side = Callable[[], float]


def counts(variable: str) -> list[int]:
    """The value of the variable: numbers from 1 on."""
    text = os.environ.get(variable, VARIABLES[variable])
    if not re.fullmatch(r"\s*[1-9]\d*(\s+[1-9]\d*)*\s*", text):
        example = f"{variable}={VARIABLES[variable]!r}"
        sys.exit(f"{variable}={text!r}: numbers from 1 on, as {example}")
    return [int(word) for word in text.split()]


PAIRS, PIXELS = counts("PAIRS")[0], counts("PIXELS")[0]
"""How often a figure is measured (the long ones less often, transparency more often), and
the size of the images for training."""


def main(figures: dict[FigureFunction, float]) -> None:
    """Run the figures that the command line names, or all, and write their page. `figures`:
    each with its minutes on 2 cores with PAIRS=10. Ends with 1 if one of them failed."""
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
    """Make and store one figure, or the reason of its failure; True if it was made."""
    made: dict[str, object] = {"about": meaning(function), "command": command(function)}
    made |= {"environment": read_environment("paddle", SAMPLES), "created": datetime.now(UTC)}
    began = time.monotonic()
    try:
        made["numbers"] = function()
    # Whatever the reason, the other figures are still made.
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
    """A failure in a line; of a command that failed, its last line."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr or b""
        said = said if isinstance(said, str) else said.decode(errors="replace")
        last = said.strip().splitlines()[-1:]
        text = ": ".join([f"a command ended with {error.returncode}", *last])
    return textwrap.shorten(portable(text), 300, placeholder=" …")


def command(function: FigureFunction) -> str:
    """The command that makes this figure alone, as it was made."""
    given = [f"{v}={shlex.quote(os.environ[v])}" for v in VARIABLES if v in os.environ]
    script = Path(sys.argv[0]).resolve()
    place = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return " ".join([*given, ".venv/bin/python", str(place), function.__name__])


def paired(name: str, one: Side, other: Side, unit: str, pairs: int = PAIRS) -> Number:
    """The median of the ratios of pairs. Both run interleaved, A B B A …, because the speed of
    a shared machine drifts."""
    values = []
    for pair in range(pairs):
        turns = (one, other) if pair % 2 == 0 else (other, one)
        got = {turn: turn() for turn in turns}
        values.append((got[one], got[other]))
        ratio = got[one] / got[other]
        print(f"  {got[one]:9.4g} / {got[other]:9.4g} = {ratio:.4f}", flush=True)
    return told(Number.of_pairs(name, values, unit))


def told(number: Number) -> Number:
    """The number, printed."""
    text = f"  {number.name}: {number.value:.4g} {'' if number.pairs else number.unit}"
    text = f"{text.rstrip()} (n={number.n}"
    if number.pairs:
        text += "; medians {:.4g} and {:.4g} ".format(*number.medians) + number.unit
    if number.interval:
        low, high = number.interval
        text += f"; {number.interval_level:.1%} interval {low:.4g} to {high:.4g}"
    print(f"{text})", flush=True)
    return number
