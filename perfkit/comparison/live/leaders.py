"""Which framework is the fastest in each row of a table, by interleaved comparisons."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from math import nan

import pandas as pd

from perfkit.comparison.live.stored import LiveComparison
from perfkit.statistics import Estimate, median_estimate


@dataclass(frozen=True)
class Ranking:
    """The frameworks that a comparison has in one row, by name.

    `ratios` are the throughputs of the others over that of the `base`, the highest first. One
    framework is ahead of another where the interval of their ratio lies above 1, at the level
    asked for: `fastest` are the highest and those that it is not ahead of, `slower` are those
    that all of the fastest are ahead of. The `leader` is the only fastest one, if no other
    measurement of the row is higher."""

    base: str
    ratios: dict[str, Estimate]
    fastest: list[str]
    slower: list[str]
    leader: str | None


def rankings(cells: pd.DataFrame, newest: Iterable[LiveComparison]) -> dict[int, Ranking]:
    """The ranking of each row of the `cells` (`comparison.blocks`) by the first comparison that
    has several of its frameworks. The base is Paddle or, without it, the first variant."""
    highest = cells.sort_values("throughput", na_position="first").groupby("row")["name"].last()
    places = cells.drop_duplicates("id").set_index("id")[["row", "name"]]
    found: dict[int, Ranking] = {}
    for comparison in newest:
        base, pairs = comparison.base.id, comparison.pairs
        repeats = {base: {turn.repeat: turn.a for pair in pairs for turn in pair.turns}}
        repeats |= {pair.b.name: {turn.repeat: turn.b for turn in pair.turns} for pair in pairs}
        turns = pd.DataFrame(repeats)
        for row, variants in places.reindex(turns.columns).dropna().groupby("row"):
            throughputs = turns[variants.index].set_axis([*variants["name"]], axis="columns")
            ranking = _ranking(throughputs, comparison.level, highest[row])
            if ranking.ratios:
                found.setdefault(int(row), ranking)
    return found


def _ranking(throughputs: pd.DataFrame, level: float, highest: str) -> Ranking:
    """Of frameworks by column, repeat by repeat; without ratios if none can be taken."""
    ratios = {}
    for a, b in permutations(throughputs, 2):
        quotients = (throughputs[a] / throughputs[b]).dropna().tolist()
        ratios[a, b] = median_estimate(quotients or [nan], level)
    ahead = {pair for pair, ratio in ratios.items() if ratio.low > 1 and ratio.level >= level}
    base = "Paddle" if "Paddle" in throughputs else throughputs.columns[0]
    to_base = {a: ratio for (a, b), ratio in ratios.items() if b == base and ratio.value > 0}
    by_height = dict(sorted(to_base.items(), key=lambda pair: -pair[1].value))
    names = [name for name, ratio in by_height.items() if ratio.value > 1]
    names = [*names, str(base), *(name for name in by_height if name not in names)]
    top, others = names[0], names[1:]
    fastest = [top, *(name for name in others if (top, name) not in ahead)]
    slower = [name for name in others if ahead.issuperset((one, name) for one in fastest)]
    leader = top if fastest == [top] == [highest] else None
    return Ranking(base, by_height, fastest, slower, leader)
