"""Runs figures one after the other, prints their numbers and stores each figure immediately,
since a later one may fail.

A figure is a function that prints its progress and returns its Numbers. Its name is the
function's; the function's docstring is its description.
"""

import argparse
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfkit.core.paths import ROOT, resolved_path
from perfkit.core.request.requirements import read_environment
from perfkit.core.results.store import write_atomically
from perfkit.core.statistics import Interval, median, median_interval, share_interval

TESTS = str(ROOT / "tests")
SAMPLES = Path(os.environ.get("SAMPLES", ROOT / "data" / "samples"))
VARIABLES = {"PAIRS": "10", "SIZES": "100 1000 10000", "COUNTS": "20"}
VARIABLES |= {"MEASUREMENTS": "100 1000", "PIXELS": "224"}
"""Environment variables that set the length of figures, and their defaults."""


def counts(variable: str) -> list[int]:
    """Return the variable's value: integers of at least 1. Exits for an invalid value."""
    text = os.environ.get(variable, VARIABLES[variable])
    found = [int(word) for word in text.split() if word.isdecimal() and int(word)]
    if not found or len(found) < len(text.split()):
        sys.exit(f"{variable}={text!r}: must be integers, such as {VARIABLES[variable]!r}")
    return found


PAIRS, PIXELS = counts("PAIRS")[0], counts("PIXELS")[0]
"""Runs per figure (fewer for long ones, more for transparency), and the training image size."""


@dataclass(frozen=True)
class Number:
    """A median or a share, its interval with the level achieved, and its runs: values, pairs,
    or whether each trial succeeded."""

    name: str
    value: float
    unit: str
    interval: Interval | None
    runs: list[Any]


FigureFunction = Callable[[], list[Number]]
Side = Callable[[], float]


def of_values(name: str, values: Sequence[float], unit: str) -> Number:
    """Print and return the median of the values."""
    return _printed(Number(name, median(values), unit, median_interval(values), [*values]))


def of_pairs(name: str, pairs: Sequence[tuple[float, float]], unit: str) -> Number:
    """Print and return the median of the ratios first / second."""
    ratios = [one / other for one, other in pairs]
    medians = " and ".join(f"{median(side):.4g}" for side in zip(*pairs, strict=True))
    unit = f"(medians {medians} {unit})"
    return _printed(Number(name, median(ratios), unit, median_interval(ratios), [*pairs]))


def of_trials(name: str, trials: Sequence[bool]) -> Number:
    """Print and return the share of trials that succeeded."""
    share, interval = sum(trials) / len(trials), share_interval(sum(trials), len(trials))
    return _printed(Number(name, share, "of the trials", interval, [*trials]))


def paired(name: str, one: Side, other: Side, unit: str, pairs: int = PAIRS) -> Number:
    """Measure pairs and return the median of their ratios. The two run interleaved, A B B A …,
    because the speed of a shared machine drifts."""
    values = []
    for pair in range(pairs):
        turns = (one, other) if pair % 2 == 0 else (other, one)
        got = {turn: turn() for turn in turns}
        values.append((got[one], got[other]))
        print("  {:9.4g} / {:9.4g}".format(*values[-1]), flush=True)
    return of_pairs(name, values, unit)


def _printed(number: Number) -> Number:
    text = f"  {number.name}: {number.value:.4g} {number.unit}, n={len(number.runs)}"
    if number.interval:
        text += "; {2:.1%} interval {0:.4g} to {1:.4g}".format(*number.interval)
    print(text, flush=True)
    return number


def main(figures: dict[FigureFunction, float]) -> None:
    """Run the figures named on the command line, or all. `figures` maps each to its minutes on
    2 cores with PAIRS=10. Exits with 1 if one failed."""
    known = {figure.__name__: figure for figure in figures}
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=", ".join(known))
    parser.add_argument("--outputs", default="outputs", help="where bench.json is written")
    given = parser.parse_args()
    names = given.names or [*known]
    if unknown := {*names} - {*known}:
        parser.error(f"no such figure: {', '.join(unknown)}; there are: {', '.join(known)}")
    file, failed = resolved_path(given.outputs) / "bench.json", []
    try:
        read(file)
    except (OSError, ValueError) as error:
        parser.error(f"{file}: {error}")
    for count, name in enumerate(names, 1):
        minutes = f"{figures[known[name]]:g} min on 2 cores with PAIRS=10"
        print(f"\n[{count}/{len(names)}] {name}: about {minutes}; here PAIRS={PAIRS}")
        print(textwrap.fill(" ".join((known[name].__doc__ or "").split()), 79), flush=True)
        try:
            store(file, name, known[name]())
        # After any failure the other figures are still made.
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print(file)
    sys.exit(f"Failed: {', '.join(failed)}" if failed else 0)


def read(file: Path) -> dict[str, Any]:
    """Return name -> figure. Raises OSError or ValueError for an unreadable file."""
    figures: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return figures


def store(file: Path, name: str, numbers: list[Number]) -> None:
    """Add the figure to the file, with its time, environment and set variables."""
    environment = read_environment("paddle", SAMPLES)
    figure = {
        "created": datetime.now(UTC).isoformat(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "environment": {name: reading.value for name, reading in environment.items()},
        "numbers": [asdict(number) for number in numbers],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(read(file) | {name: figure}, indent=1))
