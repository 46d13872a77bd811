"""Runs figures one after the other, prints their numbers and stores each figure immediately,
since a later one may fail.

A figure is a function that prints its progress and returns the summaries of its runs. Its name
is the function's; the function's docstring is its description.
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

from scipy.stats import binomtest

from perfkit.measuring.paths import ROOT, outputs_path
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.store import write_atomically
from perfkit.measuring.statistics import Interval, median, median_interval

TESTS = str(ROOT / "tests")
SAMPLES = Path(os.environ.get("SAMPLES", ROOT / "data" / "samples"))
VARIABLES = {"PAIRS": "10", "SIZES": "100 1000 10000", "COUNTS": "20"}
VARIABLES |= {"MEASUREMENTS": "100 1000", "PIXELS": "224"}
"""Environment variables that set the length of figures, and their defaults."""


def counts(variable: str) -> list[int]:
    """Return the variable's value: integers of at least 1. Exits for an invalid value."""
    default = VARIABLES[variable]
    text = os.environ.get(variable, default)
    words = text.split()
    numbers = [int(word) for word in words if word.isdecimal() and int(word)]
    if not numbers or len(numbers) < len(words):
        sys.exit(f"{variable}={text!r}: must be integers, such as {default!r}")
    return numbers


PAIRS, PIXELS = counts("PAIRS")[0], counts("PIXELS")[0]
"""Runs per figure (fewer for long ones, more for transparency), and the training image size."""


@dataclass(frozen=True)
class RunSummary:
    """A median or a share, its interval with the level achieved, and its runs: values, pairs,
    or whether each trial succeeded."""

    name: str
    value: float
    unit: str
    interval: Interval | None
    runs: list[Any]


FigureFunction = Callable[[], list[RunSummary]]
SpeedFunction = Callable[[], float]
"""Measures once and returns a throughput."""


def of_values(name: str, values: Sequence[float], unit: str) -> RunSummary:
    """Print and return the median of the values."""
    interval = median_interval(values)
    return _printed(RunSummary(name, median(values), unit, interval, [*values]))


def of_pairs(name: str, pairs: Sequence[tuple[float, float]], unit: str) -> RunSummary:
    """Print and return the median of the ratios first / second."""
    ratios = [first / second for first, second in pairs]
    first_median = median([first for first, _second in pairs])
    second_median = median([second for _first, second in pairs])
    unit = f"(medians {first_median:.4g} and {second_median:.4g} {unit})"
    return _printed(RunSummary(name, median(ratios), unit, median_interval(ratios), [*pairs]))


def of_trials(name: str, trials: Sequence[bool]) -> RunSummary:
    """Print and return the share of trials that succeeded."""
    successes = sum(trials)
    interval = share_interval(successes, len(trials))
    share = successes / len(trials)
    return _printed(RunSummary(name, share, "of the trials", interval, [*trials]))


def share_interval(hits: int, trials: int, level: float = 0.95) -> Interval:
    """Return an interval that covers the probability of a hit at `level` or more, whatever that
    probability (Clopper and Pearson, Biometrika 26, 1934). `trials` is at least 1."""
    low, high = binomtest(hits, trials).proportion_ci(level, method="exact")
    return Interval(float(low), float(high), level)


def paired(
    name: str, one: SpeedFunction, other: SpeedFunction, unit: str, pairs: int = PAIRS
) -> RunSummary:
    """Measure pairs and return the median of their ratios. The two run interleaved, A B B A …,
    because the speed of a shared machine drifts."""
    speeds = []
    for pair in range(pairs):
        if pair % 2 == 0:
            first = one()
            second = other()
        else:
            second = other()
            first = one()
        speeds.append((first, second))
        print(f"  {first:9.4g} / {second:9.4g}", flush=True)
    return of_pairs(name, speeds, unit)


def _printed(summary: RunSummary) -> RunSummary:
    text = f"  {summary.name}: {summary.value:.4g} {summary.unit}, n={len(summary.runs)}"
    if summary.interval:
        low, high, level = summary.interval
        text += f"; {level:.1%} interval {low:.4g} to {high:.4g}"
    print(text, flush=True)
    return summary


def main(figures: dict[FigureFunction, float]) -> None:
    """Run the figures named on the command line, or all. `figures` maps each to its minutes on
    2 cores with PAIRS=10. Exits with 1 if one failed."""
    by_name = {figure.__name__: figure for figure in figures}
    every_name = ", ".join(by_name)
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=every_name)
    parser.add_argument("--outputs", default="outputs", help="where bench.json is written")
    arguments = parser.parse_args()
    names = arguments.names or [*by_name]
    unknown = {*names} - {*by_name}
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}; there are: {every_name}")
    file = outputs_path(arguments.outputs) / "bench.json"
    try:
        read(file)
    except (OSError, ValueError) as error:
        parser.error(f"{file}: {error}")
    failed = []
    for number, name in enumerate(names, 1):
        figure = by_name[name]
        minutes = f"{figures[figure]:g} min on 2 cores with PAIRS=10"
        print(f"\n[{number}/{len(names)}] {name}: about {minutes}; here PAIRS={PAIRS}")
        description = " ".join((figure.__doc__ or "").split())
        print(textwrap.fill(description, 79), flush=True)
        try:
            store(file, name, figure())
        # After any failure the other figures are still made.
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print(file)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")
    sys.exit()


def read(file: Path) -> dict[str, Any]:
    """Return name -> figure. Raises OSError or ValueError for an unreadable file."""
    if not file.exists():
        return {}
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def store(file: Path, name: str, summaries: list[RunSummary]) -> None:
    """Add the figure to the file, with its time, environment and set variables."""
    facts = read_environment("paddle", SAMPLES)
    figure = {
        "created": datetime.now(UTC).isoformat(),
        "variables": {key: value for key, value in os.environ.items() if key in VARIABLES},
        "environment": {fact: reading.value for fact, reading in facts.items()},
        "numbers": [asdict(summary) for summary in summaries],
    }
    figures = read(file) | {name: figure}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(figures, indent=1))
