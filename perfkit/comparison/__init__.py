"""Comparisons: whether B is faster than A, by how much, and how sure that is.

keys.py         what two measurements must agree in, and what they may differ in
pairs.py        what A and B name; which of A is compared with which of B; ratio and verdict
stored.py       comparisons as they are stored
interleaved.py  interleaved comparisons: planned, measured and judged
text.py         comparisons and series as text for a terminal
history.py      series of one configuration over time
blocks.py       which measurements stand side by side, the fastest of a row; scaling
"""

from collections.abc import Sequence
from pathlib import Path

from perfkit.comparison.keys import across_problems
from perfkit.comparison.pairs import ComparisonError, Source, compared, source
from perfkit.comparison.stored import Comparison

__all__ = ["Comparison", "ComparisonError", "compare"]


def compare(
    a: str | Path,
    b: str | Path,
    *,
    across: Sequence[str] = (),
    level: float = 0.95,
    threshold: float = 0.02,
    outputs: str | Path = "outputs",
) -> Comparison:
    """B against A, the base: a ratio of throughputs above 1 means that B is faster.

    `a` and `b` name measurements: a result.json, the folder of one, a folder of many,
    `label:NAME` or NAME of those under `outputs`, or a published table (one of the two at
    most). They are paired where they agree in all keys that must (`keys.KEYS`), but for those
    in `across`. `level` is that of interval and verdict, 0 to 1; a pair that is slower at that
    level, by an estimate beyond `threshold`, a share, has regressed.

    Raises ComparisonError for what can't be found or read, or must not be compared; it says in
    which keys the nearest two differ. `print` shows a Comparison as the command does.
    """
    problems = across_problems(across)
    if not 0.5 <= level < 1:
        problems.append(f"level: {level:g} is not between 0.5 and 1; 0.95 is usual")
    if not 0 <= threshold < 1:
        problems.append(f"threshold: {threshold:g} is not between 0 and 1; 0.02 is 2 %")
    sources: list[Source] = []
    for side, name in (("A", a), ("B", b)):
        try:
            sources.append(source(str(name), outputs))
        except ComparisonError as error:
            problems += [f"{side}: {problem}" for problem in error.problems]
    if problems:
        raise ComparisonError(problems)
    one, other = sources
    return compared(one, other, across, level, threshold)
