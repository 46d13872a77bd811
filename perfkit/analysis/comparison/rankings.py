"""The fastest framework of a row, by interleaved comparisons."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

import pandas as pd

from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.analysis.verdicts import Verdict, verdict
from perfkit.measuring.statistics import Estimate, median_estimate


@dataclass(frozen=True)
class Ranking:
    """The frameworks, by name, that a comparison has in one row. A framework is ahead of
    another if the verdict on their ratio is `faster`."""

    base: str
    """Paddle or, without it, the first variant."""
    ratios: dict[str, Estimate]
    """The others' throughputs over the base's, highest first."""
    verdicts: dict[str, Verdict]
    """The verdicts on these ratios."""
    threshold: float
    """The smallest difference that matters, as a share."""
    fastest: list[str]
    """The highest, and all that it is not ahead of."""
    slower: list[str]
    """Those that all of the fastest are ahead of."""
    leader: str | None
    """The only fastest framework; None if there are several, or if another measurement of the
    row is higher."""


def rankings(
    cells: pd.DataFrame, newest: Iterable[InterleavedComparison]
) -> dict[int, Ranking]:
    """Return the ranking of each row of the `cells` by the first comparison that has several of
    its frameworks."""
    by_throughput = cells.sort_values("throughput", na_position="first")
    highest = by_throughput.groupby("row")["name"].last()
    places = cells.drop_duplicates("id").set_index("id")[["row", "name"]]
    by_row: dict[int, Ranking] = {}
    for comparison in newest:
        throughputs = _throughputs(comparison)
        compared = places.reindex(throughputs.columns).dropna()
        for row, variants in compared.groupby("row"):
            of_row = throughputs[variants.index].set_axis([*variants["name"]], axis="columns")
            ranking = _ranking(of_row, comparison, highest[row])
            if ranking.ratios:
                by_row.setdefault(int(row), ranking)
    return by_row


def _throughputs(comparison: InterleavedComparison) -> pd.DataFrame:
    """Return the throughputs of a comparison: a row for each repeat, a column for each variant
    with a ratio, by the measurement's id."""
    base: dict[int, float] = {}
    others: dict[str, dict[int, float]] = {}
    for pair in comparison.pairs:
        base |= {turn.repeat: turn.a for turn in pair.turns}
        others[pair.b.name] = {turn.repeat: turn.b for turn in pair.turns}
    return pd.DataFrame({comparison.base.id: base} | others)


def _ranking(
    throughputs: pd.DataFrame, comparison: InterleavedComparison, highest: str
) -> Ranking:
    """Rank frameworks by throughput: one column per framework, one row per repeat. `ratios` is
    empty if no framework has a repeat in common with the base."""
    level, threshold = comparison.level, comparison.threshold
    base = "Paddle" if "Paddle" in throughputs else str(throughputs.columns[0])
    to_base: dict[str, Estimate] = {}
    verdicts: dict[str, Verdict] = {}
    ahead: set[tuple[str, str]] = set()
    for a, b in permutations(throughputs, 2):
        quotients = (throughputs[a] / throughputs[b]).dropna().tolist()
        if not quotients:
            continue
        ratio = median_estimate(quotients, level)
        judged = verdict(ratio, level, threshold)
        if judged == "faster":
            ahead.add((a, b))
        if b == base:
            to_base[a] = ratio
            verdicts[a] = judged
    ratios = dict(sorted(to_base.items(), key=lambda item: item[1].value, reverse=True))
    above = [name for name, ratio in ratios.items() if ratio.value > 1]
    below = [name for name in ratios if name not in above]
    names = [*above, base, *below]
    top, others = names[0], names[1:]
    fastest = [top, *(name for name in others if (top, name) not in ahead)]
    slower = [name for name in others if all((fast, name) in ahead for fast in fastest)]
    leader = top if fastest == [top] == [highest] else None
    return Ranking(base, ratios, verdicts, threshold, fastest, slower, leader)
