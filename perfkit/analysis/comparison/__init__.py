"""Comparisons: whether B is faster than A, by how much, and with what confidence.

keys.py         keys in which two measurements must agree or may differ
selections.py   what the names A and B select
matching.py     which measurements of A and B are paired, and why others are not
pairs.py        pairs of measurements: differences, ratio and verdict
stored.py       stored comparisons
interleaved_plan.py  the variants of an interleaved comparison, and what is wrong with them
interleaved_run.py   measures them, one repeat of each at a time
interleaved.py  judges them
configurations.py  what the measurements of a series or a fleet's workload agree in
history.py      series of one configuration over time
blocks.py       blocks and rows of summary tables
table_rows.py   rows of summary tables, with a cell for each framework
rankings.py     the fastest framework of a row, by interleaved comparisons
scaling.py      speed-ups over the fewest devices
"""

from collections.abc import Sequence
from pathlib import Path

from perfkit.analysis.comparison.keys import wrong_keys
from perfkit.analysis.comparison.matching import compare_selected
from perfkit.analysis.comparison.selections import ComparisonError, select_results
from perfkit.analysis.comparison.stored import SelectedComparison
from perfkit.analysis.verdicts import LEVEL, THRESHOLD

__all__ = ["ComparisonError", "SelectedComparison", "compare"]


def compare(
    a: str | Path,
    b: str | Path,
    *,
    across: Sequence[str] = (),
    level: float = LEVEL,
    threshold: float = THRESHOLD,
    outputs: str | Path = "outputs",
) -> SelectedComparison:
    """Compare B with A, the base: a ratio of throughputs above 1 means that B is faster.

    `a` and `b` name measurements: a result.json, a measurement's folder, a folder of many, an
    id, `label:NAME` or NAME for a label under `outputs`, or a published table (at most one of
    the two). Measurements that agree in all of `keys.KEYS` except those in `across` are paired.
    `level` is the level of interval and verdict, 0.5 to 1. A pair has regressed if B is slower
    at that level and the estimate is below 1 - `threshold`.

    Raises ComparisonError if a source can't be found or read, or if nothing can be compared;
    the message lists the keys in which the closest pair differs. `print` shows the verdict on
    each pair.
    """
    problems = wrong_keys(across)
    if not 0.5 <= level < 1:
        problems.append(f"level: {level:g} is not between 0.5 and 1; 0.95 is usual")
    if not 0 <= threshold < 1:
        problems.append(f"threshold: {threshold:g} is not between 0 and 1; 0.02 is 2 %")
    selections = []
    for side, name in (("A", a), ("B", b)):
        try:
            selections.append(select_results(str(name), outputs))
        except ComparisonError as error:
            problems += [f"{side}: {problem}" for problem in error.problems]
    if problems:
        raise ComparisonError(problems)
    base, other = selections
    return compare_selected(base, other, across, level, threshold)
