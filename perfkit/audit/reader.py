"""Read log files: text to prints, prints to windows, and the facts in the rest of the text.

Files are untrusted: they may contain NUL bytes or endless lines, or be cut off.
"""

import gzip
import hashlib
import io
import lzma
import re
import stat
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.audit import general, mlperf, records
from perfkit.audit.config_facts import Facts, number_in
from perfkit.audit.formats import FORMATS, STAMP, LogFormat, Semantics
from perfkit.audit.log import (
    Columns,
    Log,
    LogError,
    ReportedFigure,
    prints_of,
    some_of,
    windows_of,
)
from perfkit.audit.print_facts import facts_of_prints
from perfkit.audit.reported import MOST_FIGURES, reported_figures
from perfkit.audit.statements import ByLine, LaggingMeans, Note, SeveralTrainings

LARGEST_BYTES = 128 * 1024 * 1024
"""Largest file size, unpacked; real logs have a few MB."""
LONGEST_LINE = 100_000
"""Characters; the rest of a longer line is dropped."""
HEAD = 2000
"""Lines searched for a known format before the whole file is."""
BLOCK = 2000
"""Prints converted at a time: few enough for the processor's cache."""
MOST_LINES = 4_000_000
"""More lines would take over 2 GB of memory; the longest known logs have a fifth of this."""
RUNS = 100
"""Trainings of a file, at most."""
PACKED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}
"""Magic bytes of packed files -> function that opens them, or their kind."""
TAG = re.compile(r"\[\d{1,9},(\d{1,5})\]<std(?:out|err)>:")
"""Prefix of a line with `mpirun --tag-output`."""
OTHER_FORMATS = "perfkit audit --formats lists the formats, --format-regex reads others"
PROCESSOR = re.compile(
    r"\blog_processor ?= ?dict\((?:[^()]|\([^()]{0,2000}\)){0,2000}?"
    r"(?:\bwindow_size ?= ?(?P<window>\d{1,6})|\)\s)"
)
"""mmengine's configuration of the means that it prints; what stands in inner brackets is of
other values."""
DEFAULT_WINDOW = 10
CONFIGURATION = 1_000_000
"""Characters searched for a configuration."""
ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
Lines = list[tuple[int, str]]


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def read_logs(path: Path, custom_format: LogFormat | None = None) -> list[Log]:
    """Return the trainings of a file, the longest first.
    `custom_format` is the format of the prints if it is not a known format. Raises LogError if
    the file can't be read, is empty or too large, has no known format or unusable numbers."""
    digest, text = _content(path)
    log = None if custom_format else records.read(path, text)
    if log:
        return [replace(log, sha256=digest)]
    lines = [*_lines(text)]
    if custom_format and not any(custom_format.match(line) for _number, line in lines):
        raise LogError(path, "no line matches --format-regex")
    form = custom_format or known_format(lines)
    if not form or form.is_bar:
        lines = records.as_lines(text) or lines
        form = general.format_of(lines) or form
    if not form:
        raise LogError(path, f"{general.what_was_seen(lines)}; {OTHER_FORMATS}")
    return [replace(log, sha256=digest) for log in _of_lines(path, form, lines)]


def _content(path: Path) -> tuple[str, str]:
    """Return the SHA-256 of a file and its text, unpacked, without NUL bytes and colours.
    Raises LogError."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "folder" if stat.S_ISDIR(mode) else "pipe, socket or device"
            raise LogError(path, f"a {kind}, not a regular file")
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
        data = _unpacked(path, raw)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise LogError(path, getattr(error, "strerror", None) or str(error)) from error
    if max(len(raw), len(data)) > LARGEST_BYTES:
        raise LogError(path, f"over {LARGEST_BYTES >> 20} MB; give only a part of it")
    if not data:
        raise LogError(path, "empty")
    if data.count(b"\n") + data.count(b"\r") > MOST_LINES:
        raise LogError(path, f"over {MOST_LINES:,} lines; give only a part of it")
    text = data.replace(b"\0", b"").decode("utf-8", "replace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    return hashlib.sha256(raw).hexdigest(), text


def _unpacked(path: Path, raw: bytes) -> bytes:
    """Return the beginning of a file, unpacked."""
    for magic, opener in PACKED.items():
        if not raw.startswith(magic):
            continue
        if isinstance(opener, str):
            raise LogError(path, f"{opener}; unpack it first (only gzip and xz are read)")
        with opener(io.BytesIO(raw)) as packed:
            data: bytes = packed.read(LARGEST_BYTES + 1)
            return data
    return raw


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; successive states of a progress bar share a number.
    Records of DLLogger's file become lines of its text output."""
    for numbered in enumerate(text.split("\n"), 1):
        number, line = numbered
        if len(line) <= LONGEST_LINE and "\r" not in line and '"data"' not in line:
            yield numbered
            continue
        for part in line[:LONGEST_LINE].split("\r"):
            yield number, records.as_text(part) if '"data"' in part else part


def known_format(lines: Lines) -> LogFormat | None:
    """Return the first format of FORMATS with a print; one without steps or for want of another
    only if the whole file has no other."""
    form = None
    for searched in (lines[:HEAD], lines):
        form = _first_format_in([line for _number, line in searched])
        if form and form.has_steps and not form.is_fallback:
            break
    return form


def _first_format_in(lines: list[str]) -> LogFormat | None:
    text = "\n".join(lines)
    for form in FORMATS:
        is_possible = form.key in text
        if form.needs_further and form.further:
            is_possible = is_possible and bool(form.further.search(text))
        if is_possible and any(map(form.match, lines)):
            return form
    return None


# Prints.


class Block:
    """Some prints of a format, and what further lines say of their steps. `pending` is what
    lines before the next print say of it, by column."""

    def __init__(self, form: LogFormat, pending: dict[str, str | None]) -> None:
        self.form, self.groups = form, form.line.groupindex
        further: set[str] = set()
        for pattern in (form.further, form.leading):
            further |= {*pattern.groupindex} if pattern else set()
        self.pending = pending
        self.is_stamped = form.is_stamped
        self.further: dict[str, list[str | None]] = {name: [] for name in further}
        self.lines: list[int] = []
        self.ranks: list[str | None] = []
        self.stamps: list[str | None] = []
        self.texts: list[tuple[str | None, ...]] = []
        self.last: re.Match[str] | None = None

    def add(self, match: re.Match[str], line: int, rank: str | None) -> None:
        """Add a print."""
        self.last = match
        self.texts.append(match.groups())
        self.lines.append(line)
        self.ranks.append(rank)
        if self.is_stamped:
            stamp = STAMP.match(match.string)
            self.stamps.append(stamp and stamp["at"])
        for name, texts in self.further.items():
            texts.append(self.pending.pop(name, None))

    def read_beside(self, line: str) -> None:
        """Add what a line that is no print says of the last print or of the next one."""
        if self.form.further and self.last:
            for match in self.form.further.finditer(line):
                column = str(match.lastgroup)
                texts = self.further[column]
                texts[-1] = texts[-1] or match[column]
        if self.form.leading:
            for match in self.form.leading.finditer(line):
                self.pending[str(match.lastgroup)] = match[str(match.lastgroup)]

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the texts by column; `tag` is the rank by mpirun's prefix."""
        columns: dict[str, Sequence[Any]] = {"line": self.lines, "tag": self.ranks}
        if self.is_stamped:
            columns["at"] = self.stamps
        columns |= self.further
        by_group = [*zip(*self.texts, strict=True)]
        if by_group:
            for name, group in self.groups.items():
                columns[name] = _first_of_each(by_group[group - 1], self.further.get(name))
        return columns


def _first_of_each(
    texts: Sequence[str | None], further: Sequence[str | None] | None
) -> Sequence[str | None]:
    """Return the texts of prints, completed by those of further lines."""
    if further is None:
        return texts
    return [text or other for text, other in zip(texts, further, strict=True)]


def _prints(form: LogFormat, lines: Lines, rest: Lines) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield, by column, up to BLOCK prints of a format at a time; append the lines that are no
    prints to `rest`."""
    pending: dict[str, str | None] = {}
    block = Block(form, pending)
    for numbered in lines:
        number, line = numbered
        match = form.match(line)
        is_last = numbered is lines[-1]
        if not match and not is_last:
            block.read_beside(line)
        if not match or (is_last and _is_cut(match)):
            rest.append(numbered)
            continue
        if len(block.lines) == BLOCK:
            yield block.columns()
            block = Block(form, pending)
        block.add(match, number, _rank(line, match.start()))
    yield block.columns()


def _is_cut(match: re.Match[str]) -> bool:
    """Whether a number ends at the end of the file, which may have been cut off within it."""
    ends = {match.end(group) for group in range(1, match.re.groups + 1)}
    return len(match.string) in ends


def _rank(line: str, begin: int) -> str | None:
    """Return the rank in mpirun's prefix of a print, which begins there, if it has one."""
    if "]<std" not in line:
        return None
    tag = TAG.search(line[:begin])
    return tag and tag[1]


def _arrays(blocks: Iterable[Mapping[str, Sequence[Any]]]) -> Columns:
    """Convert prints by column to arrays."""
    converted = [prints_of(columns) for columns in blocks]
    return {name: np.concatenate([block[name] for block in converted]) for name in converted[0]}


def _of_longest_loop(prints: Columns) -> Columns:
    """Return the prints of the loop that took longest: of the training, not of an evaluation or
    of the preparation of data. Where its steps begin anew, a new epoch does."""
    if not prints["of_steps"].any():
        return prints
    if not np.isnan(prints["at"]).all():
        longest = prints["of_steps"][np.nanargmax(prints["at"])]
        prints = some_of(prints, prints["of_steps"] == longest)
    if not prints["epoch"].any():
        # A bar is shown again, at the same step, after a line of the log.
        further = np.diff(prints["step"], prepend=prints["step"][0])
        is_shown_again = (further == 0) & np.append(False, further[:-1] > 0)
        begins = (further <= 0) & ~is_shown_again
        prints = prints | {"epoch": np.cumsum(begins)}
    return prints


def _of_bar(prints: Columns) -> Columns:
    """Return the prints of a progress bar by its elapsed time, without the rates of its states,
    which are exponential means. Where only the last state of each bar was saved, this is the
    mean of all its steps: a finished bar shows their rate, another one the elapsed time. A
    state that is shown again after a line of the log is no print of another rank."""
    changes = [np.diff(prints[name], prepend=-1) != 0 for name in ("step", "epoch")]
    prints = some_of(prints, np.any(changes, axis=0))
    is_alone = np.diff(prints["epoch"], prepend=-1) != 0
    if not is_alone.all():
        return prints | {"seconds": np.full(len(is_alone), np.nan)}
    step, elapsed = prints["step"], prints["at"]
    is_finished = (step == prints["of_steps"]) & (prints["seconds"] > 0)
    seconds = np.where(is_finished, prints["seconds"], elapsed / step)
    unknown = np.full(len(step), np.nan)
    return prints | {"seconds": seconds, "begin": np.zeros_like(step), "at": unknown}


def _with_reader(semantics: Semantics, prints: Columns) -> Semantics:
    """If a format leaves open whether its times include the data wait, decide by the printed
    samples: compare rate x seconds and rate x (reader + seconds) with them. The last batch of a
    data file has fewer samples."""
    columns = [prints[name] for name in ("rate", "seconds", "reader", "samples")]
    is_known = ~np.any([np.isnan(column) for column in columns], axis=0)
    if semantics.reader or not is_known.any():
        return semantics
    rate, seconds, reader, samples = (column[is_known] for column in columns)
    batch = samples.max()
    error_alone = np.median(np.abs(rate * seconds - batch))
    error_with_reader = np.median(np.abs(rate * (seconds + reader) - batch))
    if error_alone < error_with_reader:
        return replace(semantics, reader="in")
    return semantics


def _with_count(semantics: Semantics, prints: Columns) -> Semantics:
    """If a format leaves open whether steps count from 0 or 1, decide by a printed step 0."""
    if semantics.counts_from is not None:
        return semantics
    return replace(semantics, counts_from=0 if (prints["step"] == 0).any() else 1)


def _own_window(lines: Lines) -> int:
    """Return the length of the window over which mmengine takes means, by the configuration in
    these lines; 0 if they have none."""
    text = "\n".join(line for _number, line in lines)[:CONFIGURATION]
    processor = PROCESSOR.search(text)
    if not processor:
        return 0
    return int(processor["window"] or DEFAULT_WINDOW)


# Trainings.


@dataclass
class Training:
    """A training of a file: its number from 1, its prints and its facts. A step count that
    restarts begins another training, unless the epoch counts on."""

    part: int
    windows: pd.DataFrame
    facts: Facts

    @property
    def steps(self) -> int:
        """The steps that the prints of a rank cover."""
        steps = self.windows["last"] - self.windows["first"] + 1
        return int(steps.groupby(self.windows["rank"]).sum().max()) if len(steps) else 0


def _of_lines(path: Path, form: LogFormat, lines: Lines) -> list[Log]:
    """Return the trainings of a file of printed lines, the longest first."""
    events = mlperf.events_in(lines)
    rest: Lines = []
    notes: list[Note] = []
    if form.has_steps:
        prints = _of_longest_loop(_arrays(_prints(form, lines, rest)))
        if form.is_bar and len(prints["line"]):
            prints = _of_bar(prints)
    else:
        rest = lines
        prints = _arrays([mlperf.prints(events)])
        notes += mlperf.notes(events)
    semantics = _with_count(_with_reader(form.semantics, prints), prints)
    if semantics.covers == "rolling" and not semantics.window:
        semantics = replace(semantics, window=_own_window(rest))
        if not semantics.window:
            notes = [*notes, Note(LaggingMeans())]
    windows = _one_count_of_runs(windows_of(prints, semantics))
    reported = _reported(rest, events)
    if not form.has_steps and not len(windows) and not reported:
        raise LogError(path, f"lines of {form.name} without a figure")
    if form.has_steps:
        # The first print of a training may have facts, too.
        first_lines = {*windows.groupby("run")["line"].min()}
        rest += [numbered for numbered in lines if numbered[0] in first_lines]
        rest.sort(key=itemgetter(0))
    trainings = _trainings(form, windows, rest, events)
    logs = []
    for training in trainings:
        training.facts.complete(path)
        log = Log(
            path=path,
            format=form.name,
            sha256="",
            semantics=semantics,
            windows=training.windows,
            facts=training.facts.by_name,
            notes=[*notes, *training.facts.contradictions.values()],
            part=training.part if len(trainings) > 1 else 0,
            printed=form.printed,
        )
        logs.append(log)
    for figure in reported:
        logs[_reporting(figure, trainings)].reported.append(figure)
    order = sorted(range(len(logs)), key=lambda index: -trainings[index].steps)
    if len(logs) > 1:
        logs[order[0]].notes.insert(0, _several_trainings(trainings[order[0]], len(logs)))
    return [logs[index] for index in order]


def _several_trainings(longest: Training, count: int) -> Note:
    windows = longest.windows
    finding = SeveralTrainings(
        count=count, first=windows["first"].min(), last=windows["last"].max()
    )
    return Note(finding, int(windows["line"].min()))


def _reported(rest: Lines, events: list[mlperf.Event]) -> list[ReportedFigure]:
    """Return the figures that a file reports."""
    printed = (figure for figure in reported_figures(rest) if not np.isnan(figure.value))
    figures = chain(printed, mlperf.reported(events))
    return [*islice(figures, MOST_FIGURES)]


def _reporting(figure: ReportedFigure, trainings: list[Training]) -> int:
    """Return the index of the training that reports a figure: the last of the figure's number
    of devices or, without one, the last that has begun to print."""
    ranks = [number_in(training.facts.by_name, "ranks") for training in trainings]
    if figure.ranks in ranks:
        return max(index for index, count in enumerate(ranks) if count == figure.ranks)
    begun = [training.windows["line"].min() < figure.line for training in trainings]
    return max(sum(begun) - 1, 0)


def _one_count_of_runs(windows: pd.DataFrame) -> pd.DataFrame:
    """Number the runs consistently over all ranks: a rank that first prints in a later training
    of the file has no earlier runs. If rank 0 prints in runs 0 and 1, and rank 1 only in the
    lines of run 1, which is its run 0, this becomes run 1."""
    lines, runs = windows["line"].to_numpy(), windows["run"].to_numpy()
    if not runs.any():
        return windows
    if runs.max() >= RUNS:
        # So many restarts are epochs that no line numbers.
        return windows.assign(run=0)
    _ranks, first_windows, rank_index = np.unique(
        windows["rank"], return_index=True, return_inverse=True
    )
    # A rank that printed in most of the runs tells where they end.
    is_of_most = rank_index == rank_index[runs.argmax()]
    last_windows = np.flatnonzero(np.diff(runs[is_of_most]))
    ends = lines[is_of_most][last_windows]
    runs_before_rank = np.searchsorted(ends, lines[first_windows])
    runs = runs + runs_before_rank[rank_index]
    _runs, numbered = np.unique(runs, return_inverse=True)
    return windows.assign(run=numbered)


def _trainings(
    form: LogFormat, windows: pd.DataFrame, lines: Lines, events: list[mlperf.Event]
) -> list[Training]:
    """Return the trainings of a file. A fact that `lines` behind the last print of the training
    before don't tell is that of the training before or, if none told it, of the next."""
    trainings: list[Training] = []
    of_runs = [of_run for _run, of_run in windows.groupby("run")] or [windows]
    begin = 0
    for part, of_run in enumerate(of_runs, 1):
        end = len(lines)
        if part < len(of_runs):
            end = bisect_right(lines, of_run["line"].max(), key=itemgetter(0))
        facts = Facts(framework=form.framework, unit=form.unit)
        for name, value, line in (*facts_of_prints(of_run), *mlperf.facts_in(events)):
            facts.add(name, value, ByLine(line=line))
        first_print = of_run["line"].min() if len(of_run) else inf
        facts.read(lines[begin:end], first_print)
        trainings.append(Training(part, of_run.reset_index(drop=True), facts))
        begin = end
    for before, after in pairwise(trainings):
        after.facts.by_name = before.facts.by_name | after.facts.by_name
    for after, before in pairwise(reversed(trainings)):
        before.facts.by_name = after.facts.by_name | before.facts.by_name
    return trainings
