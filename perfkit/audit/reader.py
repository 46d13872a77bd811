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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.audit import documents
from perfkit.audit.config_facts import Facts, number_in
from perfkit.audit.formats import FORMATS, LogFormat, Semantics
from perfkit.audit.log import Columns, Log, LogError, ReportedFigure, prints_of, windows_of
from perfkit.audit.statements import LineTooLong, NoLineEnd, Note, NulBytes, OtherFormat

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
"""Trainings of a file whose facts are read."""
PACKED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}
"""Magic bytes of packed files -> function that opens them, or their kind."""
TAG = re.compile(r"\[\d{1,9},(\d{1,5})\]<std(?:out|err)>: ?$")
"""Prefix of a line with `mpirun --tag-output`."""
STEP = ("Epoch", "Iteration", "Validation Iteration")
"""DLLogger's names for the numbers of a step."""
ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
PLACE = ("epoch", "step")
Lines = list[tuple[int, str]]


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def read_logs(path: Path, custom_format: LogFormat | None = None) -> list[Log]:
    """Return the trainings of a file: several if their configurations differ, else one.
    `custom_format` is the format of the prints if it is not a known format. Raises LogError if
    the file can't be read, is empty or too large, has no known format or unusable numbers."""
    try:
        digest, data = _content(path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise LogError(path, getattr(error, "strerror", None) or str(error)) from error
    if not data:
        raise LogError(path, "empty")
    if data.count(b"\n") + data.count(b"\r") > MOST_LINES:
        raise LogError(path, f"over {MOST_LINES:,} lines; give only a part of it")
    notes: list[Note] = []
    if nuls := data.count(b"\0"):
        data = data.replace(b"\0", b"")
        notes.append(Note(NulBytes(count=nuls)))
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    del data
    text = ESCAPE.sub("", text) if "\x1b" in text else text
    lines = [*_lines(text, notes)]
    if form := custom_format or _recognised(lines, notes):
        found = _of_lines(path, form, lines, notes)
    elif log := documents.read(path, text):
        found = [log]
    else:
        known = "docs/reference/formats.md lists the formats"
        raise LogError(
            path, f"no known format, or cut off; {known}, --format-regex reads others"
        )
    return [replace(log, sha256=digest) for log in found]


def _content(path: Path) -> tuple[str, bytes]:
    """Return the SHA-256 of a file and its bytes, unpacked."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe, socket or device"
        raise LogError(path, f"a {kind}, not a regular file")
    with path.open("rb") as file:
        raw = data = file.read(LARGEST_BYTES + 1)
    for opened in (PACKED[magic] for magic in PACKED if raw.startswith(magic)):
        if isinstance(opened, str):
            raise LogError(path, f"{opened}; unpack it first (only gzip and xz are read)")
        with opened(io.BytesIO(raw)) as packed:
            data = packed.read(LARGEST_BYTES + 1)
    if max(len(raw), len(data)) > LARGEST_BYTES:
        raise LogError(path, f"over {LARGEST_BYTES >> 20} MB; give only a part of it")
    return hashlib.sha256(raw).hexdigest(), data


def _lines(text: str, notes: list[Note]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; successive states of a progress bar share a number.
    Records of DLLogger's file become lines of its text output."""
    lines = text.split("\n")
    if lines[-1]:
        notes.append(Note(NoLineEnd(), len(lines)))
    for pair in enumerate(lines, 1):
        number, line = pair
        if len(line) > LONGEST_LINE:
            notes.append(Note(LineTooLong(characters=LONGEST_LINE), number))
        elif "\r" not in line and '"data"' not in line:
            yield pair
            continue
        for part in line[:LONGEST_LINE].split("\r"):
            yield number, _as_text(part) if '"data"' in part else part


def _as_text(line: str) -> str:
    """Return a record of DLLogger's file as the printed line; other lines unchanged."""
    begin = max(line.find("{"), 0)
    head = f"{line[:begin].removesuffix('DLLL ')}DLL"
    record = documents.parsed(line[begin:])
    if not isinstance(record, dict) or not isinstance(record.get("data"), dict):
        return line
    place = record.get("step") or "()"
    if isinstance(place, list):
        place = " ".join(map("{}: {}".format, STEP, place))
    elif isinstance(place, int):
        place = f"Iteration: {place}"
    pairs = " ".join(f"{name} : {value} " for name, value in record["data"].items())
    return f"{head} {record.get('datetime')} - {place} {pairs}"


def _recognised(lines: Lines, notes: list[Note]) -> LogFormat | None:
    """Return the first format of FORMATS with a print; note others with prints of their own."""
    found: list[LogFormat] = []
    for searched in (lines[:HEAD], lines):
        texts = [line for _number, line in searched]
        whole, found = "\n".join(texts), []
        for form in FORMATS:
            own = (line for line in texts if form.match(line)) if form.key in whole else ()
            if any(not (found and found[0].match(line)) for line in own):
                found.append(form)
        if any(form.has_steps for form in found):
            break
    others = [form.name for form in found[1:] if form.has_steps]
    notes += [Note(OtherFormat(format=name)) for name in others]
    return found[0] if found else None


def _of_lines(path: Path, form: LogFormat, lines: Lines, notes: list[Note]) -> list[Log]:
    events = documents.events(lines)
    rest: Lines = [] if form.has_steps else lines
    columns = _prints(form, lines, rest) if form.has_steps else [documents.prints(events)]
    try:
        blocks = [*map(prints_of, columns)]
    except (ValueError, ArithmeticError) as error:
        raise LogError(path, f"unusable numbers: {error}") from error
    prints = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    if form.is_custom and not len(prints["line"]):
        raise LogError(path, "no line matches --format-regex")
    semantics = _with_reader(form.semantics, prints)
    windows = _one_count_of_runs(windows_of(prints, semantics))
    own = (f for f in documents.reported_figures(rest) if not np.isnan(f.value))
    reported = [*islice(chain(own, documents.reported(events)), documents.MOST_FIGURES)]
    if not form.has_steps and not len(windows) and not reported:
        raise LogError(path, f"lines of {form.name} without a figure")
    run_of = windows["run"].to_numpy()
    starts = windows["line"].to_numpy()[np.unique(run_of, return_index=True)[1]]
    if form.has_steps:
        # The first print of a training may have facts, too.
        firsts = {*starts.tolist()}
        rest += [pair for pair in lines if pair[0] in firsts]
        rest.sort(key=itemgetter(0))
    segments = _segments(form, windows, rest)
    for _runs, facts in segments:
        facts.complete(path)
    known_ranks = {number_in(facts.by_name, "ranks") for _runs, facts in segments} - {0}

    def is_own(figure: ReportedFigure, runs: Sequence[int], facts: Facts) -> bool:
        """Whether a figure belongs to these runs: by its device count or, without one, by its
        position behind their first print."""
        if figure.ranks in known_ranks:
            return figure.ranks == number_in(facts.by_name, "ranks")
        return max(np.searchsorted(starts, figure.line) - 1, 0) in runs

    return [
        Log(
            path=path,
            format=form.name,
            sha256="",
            semantics=semantics,
            windows=windows[np.isin(run_of, runs)].reset_index(drop=True) if part else windows,
            facts=facts.by_name,
            reported=[figure for figure in reported if is_own(figure, runs, facts)],
            notes=[*notes, *facts.contradictions.values()],
            part=part,
        )
        for part, (runs, facts) in enumerate(segments, int(len(segments) > 1))
    ]


def _prints(form: LogFormat, lines: Lines, rest: Lines) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield, by column, up to BLOCK prints of a format at a time and what further lines say of
    their steps; append the other lines to `rest`."""
    groups = form.line.groupindex
    further = {*form.extra.groupindex} - {*groups} if form.extra else set()
    columns: dict[str, list[Any]] = {name: [] for name in ("line", "tag", *further)}
    rows: list[tuple[str | None, ...]] = []
    last: re.Match[str] | None = None

    def block() -> dict[str, Sequence[Any]]:
        texts = [*zip(*rows, strict=True)]
        return columns | {name: texts[k - 1] for name, k in groups.items() if texts}

    key, search = form.key, form.line.search
    for index, (number, line) in enumerate(lines, 1):
        match = search(line) if key in line else None
        found = match or (form.extra and form.key in line and form.extra.search(line))
        if not found or (index == len(lines) and _is_cut(found)):
            rest.append((number, line))
            continue
        tag = TAG.search(line[: found.start()][-60:]) if "]<std" in line else None
        rank = tag[1] if tag else None
        if match:
            if len(rows) == BLOCK:
                yield block()
                columns, rows = {name: [] for name in columns}, []
            columns["line"].append(number)
            columns["tag"].append(rank)
            rows.append(match.groups())
            last = match
            for name in further:
                columns[name].append(None)
        elif last and columns["tag"][-1] == rank and last.group(*PLACE) == found.group(*PLACE):
            for name in further:
                columns[name][-1] = columns[name][-1] or found[name]
    yield block()


def _is_cut(match: re.Match[str]) -> bool:
    """Whether a number ends at the end of the file, which may have been cut off within it."""
    return len(match.string) in {match.end(k) for k in range(1, match.re.groups + 1)}


def _with_reader(semantics: Semantics, prints: Columns) -> Semantics:
    """If a format leaves open whether its times include the data wait, decide by the printed
    samples: compare rate x seconds and rate x (reader + seconds) with them. The last batch of a
    data file has fewer samples."""
    names = ("rate", "seconds", "reader", "samples")
    known = ~np.any([np.isnan(prints[name]) for name in names], axis=0)
    if semantics.reader or not known.any():
        return semantics
    rate, seconds, reader, samples = (prints[name][known] for name in names)
    alone, both = (
        np.median(np.abs(rate * time - samples.max())) for time in (seconds, seconds + reader)
    )
    return replace(semantics, reader="in") if alone < both else semantics


def _one_count_of_runs(windows: pd.DataFrame) -> pd.DataFrame:
    """Number the runs consistently over all ranks: a rank that first prints in a later training
    of the file has no earlier runs."""
    lines, runs = windows["line"].to_numpy(), windows["run"].to_numpy()
    if not runs.any():
        return windows
    _, firsts, rank = np.unique(windows["rank"], return_index=True, return_inverse=True)
    # Ends of the trainings, by a rank that printed in most of them.
    most = rank == rank[runs.argmax()]
    ends = lines[most][np.flatnonzero(np.diff(runs[most]))]
    runs = runs + np.searchsorted(ends, lines[firsts])[rank]
    return windows.assign(run=np.unique(runs, return_inverse=True)[1])


def _segments(
    form: LogFormat, windows: pd.DataFrame, lines: Lines
) -> list[tuple[list[int], Facts]]:
    """Return the groups of runs with the same configuration, and the facts of each group."""
    # Lines behind the last print of a training belong to the next training.
    last = len(windows) - 1 - np.unique(windows["run"][::-1], return_index=True)[1]
    ends = windows["line"].to_numpy()[last].tolist()
    numbers = [number for number, _line in lines]
    cuts = [0, *(bisect_right(numbers, end) for end in ends[:-1][: RUNS - 1])]
    found: list[tuple[list[int], Facts]] = []
    for run, (begin, end) in enumerate(pairwise([*cuts, len(lines)])):
        facts = Facts(framework=form.framework, unit=form.unit)
        facts.read(lines[begin:end])
        before = found[-1][1].by_name if found else {}
        differs = any(
            name in before and before[name].value != fact.value and name not in ("input", "gpu")
            for name, fact in facts.by_name.items()
        )
        if found and not differs:
            found[-1][0].append(run)
            found[-1][1].by_name = facts.by_name | before
        else:
            facts.by_name = before | facts.by_name
            found.append(([run], facts))
    found[-1][0].extend(range(len(cuts), len(ends)))
    return found
