"""Which steps of foreign logs the number of a measurement is of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import isfinite
from typing import Any

from perfkit.config import PROTOCOLS, Protocol
from perfkit.importers.log import Log
from perfkit.request.refusal import RequestError, validated
from perfkit.results.windows import FIELDS, Basis, Window, by_rank, covering

BASES: tuple[Basis, ...] = ("seconds", "own_rate", "clock")
PRINTS = 100_000
"""In how many prints of a log, from its first on, the window is looked for."""


@dataclass(frozen=True)
class Training:
    """One epoch of one training in a log, with its windows in the file's order."""

    log: Log
    run: int
    epoch: int
    windows: list[Window]


def window_of(
    logs: Sequence[Log], asked: Mapping[str, Any]
) -> tuple[Basis, Protocol, list[Training]]:
    """From what the time of the window follows, its steps, and the training of each log that
    has them. Raises RequestError where there are no such steps."""
    trainings = [list(_trainings(log)) for log in logs]
    problems: list[str] = []
    repeats: dict[str, Any] = {"name": "published", "repeats": len(logs)}
    wanted: Protocol | None = validated(Protocol.named, repeats | dict(asked), problems)
    if wanted is None:
        raise RequestError(problems)
    usual = [(basis, (wanted.warmup_steps + 1, wanted.steps)) for basis in BASES]
    nearest = _nearest(trainings[0][0])
    for basis, (first, last) in usual if asked else [*usual, *nearest]:
        found = [
            next((one for one in some if _covers(one, basis, first, last)), None)
            for some in trainings
        ]
        if all(found):
            warmup, measured = first - 1, last - first + 1
            protocol = Protocol.named(**repeats, warmup_steps=warmup, measured_steps=measured)
            return basis, protocol, [one for one in found if one]
    ends = ", ".join(str(window["last"]) for window in trainings[0][0].windows[:8])
    other = "" if asked else ", nor are there others that all logs have"
    if any(log.windows.count > PRINTS for log in logs):
        other += f" (only the first {PRINTS:,} prints of a log are looked at)"
    raise RequestError(
        [
            f"the prints of these logs do not tell of steps {wanted.warmup_steps + 1} to "
            f"{wanted.steps} and no more{other}: the first log's end at {ends} …; give logs "
            "with the same prints, or -p warmup_steps and -p measured_steps"
        ]
    )


def _trainings(log: Log) -> Iterator[Training]:
    """The epochs of the trainings in a log, of its first PRINTS windows."""
    windows: dict[tuple[int, int], list[Window]] = {}
    for row in islice(chain.from_iterable(log.windows), PRINTS):
        place = (int(row["run"]), int(row["epoch"]))
        windows.setdefault(place, []).append({name: _plain(row[name]) for name in FIELDS})
    for (run, epoch), some in windows.items():
        yield Training(log, run, epoch, some)


def _plain(value: Any) -> int | float | None:
    """A number of a row as JSON has it."""
    number: int | float = value.item()
    return number if isfinite(number) else None


def _bases(training: Training) -> Iterator[Basis]:
    """From what the time of this log's windows may follow."""
    meaning = training.log.meaning
    waits = [window["reader"] is not None for window in training.windows]
    match meaning.reader:
        case "in":
            told = True
        case "apart":
            # A format that never prints the wait leaves it out of its throughput, too.
            told = all(waits) or not any(waits)
        case None:
            # Nothing says whether the printed time has the printed wait in it.
            told = not any(waits)
    if told:
        yield "seconds"
    yield "own_rate"
    yield "clock"


def _covers(training: Training, basis: Basis, first: int, last: int) -> bool:
    return basis in _bases(training) and all(
        covering(some, first, last, basis) for some in by_rank(training.windows)
    )


def _nearest(training: Training) -> list[tuple[Basis, tuple[int, int]]]:
    """The steps nearest to those of the protocol `published` that prints allow: after its
    warm-up, and at least as many. The best basis first."""
    warmup, measured = (
        PROTOCOLS["published"][name] for name in ("warmup_steps", "measured_steps")
    )
    found = []
    for basis in _bases(training):
        ends = _ends(by_rank(training.windows)[0], basis)
        begin = next((end for end in ends[:-1] if end >= warmup), ends[0])
        last = next((end for end in ends if end >= begin + measured), ends[-1])
        # Of one step among others that are not printed, nothing follows for those.
        if last > begin + 1 or (last > begin and len(training.windows) == 1):
            found.append((basis, (begin + 1, last)))
    return sorted(found, key=lambda one: min(one[1][1] - one[1][0] + 1, measured), reverse=True)


def _ends(windows: Sequence[Window], basis: Basis) -> list[int]:
    """The steps after which a window may begin or end, of the longest row of prints of which
    each goes on where the last ended."""
    if basis == "clock":
        return sorted({w["last"] for w in windows if w["at"] is not None}) or [0]
    rows: list[list[int]] = [[0]]
    for window in windows:
        if window[basis] is None:
            continue
        if rows[-1][-1] != window["first"] - 1:
            rows.append([window["first"] - 1])
        rows[-1].append(window["last"])
    return max(rows, key=lambda row: row[-1] - row[0])
