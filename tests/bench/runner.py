"""Runs figures one after the other and stores each as it comes, since a later one may fail.

A figure is a function that prints its progress and returns its Numbers. It goes by the
function's name; the function's docstring says what it tells.
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

from perfkit.config import ROOT, portable, resolved_path
from perfkit.report.site import publish_bench
from perfkit.request.environment import read_environment
from perfkit.results.figures import (
    RUNS_AT_MOST,
    Figure,
    Number,
    figures_file,
    read_figures,
    store_figure,
)
from perfkit.results.files import ResultError

SAMPLES = ROOT / "data" / "samples"
VARIABLES = {"PAIRS": "10", "SIZES": "100 1000 10000", "COUNTS": "20", "MEASUREMENTS": "1000"}
"""Variables that make figures shorter or longer, and what they are if not set."""

FigureFunction = Callable[[], list[Number]]


def counts(variable: str) -> list[int]:
    """What the variable is set to: numbers from 1 on."""
    text = os.environ.get(variable, VARIABLES[variable])
    if not re.fullmatch(r"\s*[1-9]\d*(\s+[1-9]\d*)*\s*", text):
        sys.exit(
            f"{variable}={text!r}: numbers from 1 on, as {variable}={VARIABLES[variable]!r}"
        )
    return [int(word) for word in text.split()]


PAIRS = min(counts("PAIRS")[0], RUNS_AT_MOST // 2)
"""How often a figure is measured; the long ones less often, transparency twice as often."""


def main(figures: dict[FigureFunction, float]) -> None:
    """Run those that the command line names, else all, and write their page. `figures`: each
    with the minutes it takes on 2 cores with PAIRS=10. Ends with 1 if one of them failed."""
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
    minutes = {name: figures[known[name]] for name in names}
    print(f"{_duration(sum(minutes.values()))} on 2 cores with PAIRS=10; here PAIRS={PAIRS}")
    failed = []
    try:
        for number, name in enumerate(names, 1):
            print(f"\n[{number}/{len(names)}] {name}, {_duration(minutes[name])}")
            print(textwrap.fill(_meaning(known[name]), 79), flush=True)
            if not run(known[name], outputs):
                failed.append(name)
    except KeyboardInterrupt:
        print("Interrupted; the figures made so far are stored.")
        failed.append(f"{name} (interrupted)")
    if figures_file(outputs).exists():
        publish_bench(outputs)
        print(figures_file(outputs).with_name("report.html"))
    sys.exit(f"Failed: {', '.join(failed)}" if failed else 0)


def _meaning(function: FigureFunction) -> str:
    return " ".join((function.__doc__ or "").split())


def _duration(minutes: float) -> str:
    return f"about {minutes:.0f} min" if minutes >= 1 else f"about {minutes * 60:.0f} s"


def run(function: FigureFunction, outputs: Path) -> bool:
    """Make one figure and store it, or why it could not be made; whether it could."""
    environment = read_environment("paddle", SAMPLES)
    created, began = datetime.now(UTC), time.monotonic()
    numbers, failure = [], None
    try:
        numbers = function()
    # Whatever it is: the other figures are made all the same.
    except Exception as error:
        traceback.print_exc()
        failure = reason(error)
    figure = Figure(
        about=_meaning(function),
        command=command(function),
        created=created,
        seconds=time.monotonic() - began,
        environment=environment,
        numbers=numbers,
        failure=failure,
    )
    try:
        store_figure(outputs, function.__name__, figure)
    except (OSError, ResultError) as error:
        print(f"  not stored: {error}")
        return False
    return failure is None


def reason(error: Exception) -> str:
    """A failure in a line; of a command that failed, what it said last."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr or b""
        said = said if isinstance(said, str) else said.decode(errors="replace")
        last = said.strip().splitlines()[-1:]
        text = ": ".join([f"a command ended with {error.returncode}", *last])
    return textwrap.shorten(portable(text), 300, placeholder=" …")


def command(function: FigureFunction) -> str:
    """What is typed in the checkout to make this figure alone, as it was made."""
    given = [
        f"{name}={shlex.quote(os.environ[name])}" for name in VARIABLES if name in os.environ
    ]
    script = Path(sys.argv[0]).resolve()
    place = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return " ".join([*given, ".venv/bin/python", str(place), function.__name__])


def paired(
    name: str,
    one: Callable[[], float],
    other: Callable[[], float],
    unit: str,
    pairs: int = PAIRS,
) -> Number:
    """Run both in turn, A B B A …, because the speed of a shared machine drifts: the median of
    the ratios pair by pair."""
    values = []
    for pair in range(pairs):
        turns = (one, other) if pair % 2 == 0 else (other, one)
        got = {turn: turn() for turn in turns}
        values.append((got[one], got[other]))
        print(
            f"  {got[one]:9.4g} / {got[other]:9.4g} = {got[one] / got[other]:.4f}", flush=True
        )
    return told(Number.of_pairs(name, values, unit))


def told(number: Number) -> Number:
    """The number, printed."""
    unit = "" if number.pairs else number.unit
    text = f"  {number.name}: {number.value:.4g} {unit}".rstrip() + f" (n={number.n}"
    if number.pairs:
        text += "; medians {:.4g} and {:.4g} ".format(*number.medians) + number.unit
    if number.interval:
        low, high = number.interval
        text += f"; {number.interval_level:.1%} interval {low:.4g} to {high:.4g}"
    print(f"{text})", flush=True)
    return number
