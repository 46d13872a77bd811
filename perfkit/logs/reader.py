"""Files to logs: text to prints, prints to windows, and what else the text tells.

Nothing in such a file is trusted: it may hold NUL bytes, a line without end, or end in the
middle of one.
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
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.logs import documents
from perfkit.logs.config_facts import Facts, number_in
from perfkit.logs.formats import DOCUMENTS, FORMATS, LogFormat, Semantics
from perfkit.logs.log import Log, LogError, Prints, ReportedFigure, prints_of, windows_of
from perfkit.messages import Message

LARGEST_BYTES = 128 * 1024 * 1024
"""How long a file may be, when it is unpacked: real logs have a few MB."""
LONGEST_LINE = 100_000
"""Characters; the rest of a longer line is left out."""
HEAD = 2000
"""So many lines are tried to recognise a format, before all are."""
REPORTED = 10_000
"""How many of its own figures are kept of one log."""
MOST_LINES = 4_000_000
"""More would take more than 2 GB; the longest logs have a fifth of that."""
RUNS = 100
"""The facts of how many trainings in a file are read."""
PACKED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}
"""How packed files begin, and what opens them, or what they are."""
TAG = re.compile(r"\[\d{1,9},(\d{1,5})\]<std(?:out|err)>: ?$")
"""What `mpirun --tag-output` puts before a line."""
STEP = ("Epoch", "Iteration", "Validation Iteration")
"""What DLLogger calls the numbers of a step in its text."""
ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
Lines = list[tuple[int, str]]
Notes = list[tuple[int, Message]]


# Numbers of any size may be printed, and divided by.
@np.errstate(all="ignore")
def read_logs(path: Path, given: LogFormat | None = None) -> list[Log]:
    """The trainings of a file: several if their configurations differ, else one. With `given`,
    prints are those of this format. Raises LogError where the file can't be read, is empty, too
    large or in no known format."""
    try:
        raw, data = _content(path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise LogError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error
    if not data:
        raise LogError(f"{path} is empty.")
    if data.count(b"\n") + data.count(b"\r") > MOST_LINES:
        raise LogError(f"{path} has over {MOST_LINES:,} lines; give a part of it.")
    notes: Notes = []
    if nuls := data.count(b"\0"):
        data = data.replace(b"\0", b"")
        notes.append((0, Message("nul_bytes", {"count": nuls})))
    text = data.decode("utf-8", "replace")
    text = ESCAPE.sub("", text) if "\x1b" in text else text
    lines = [*_lines(text, notes)]
    if form := given or _recognised(lines, notes):
        found = _of_lines(path, form, lines, notes)
    elif log := documents.read(path, text):
        found = [log]
    else:
        known = "; ".join([*(f.name for f in FORMATS), *(f["name"] for f in DOCUMENTS)])
        raise LogError(f"{path} is in no known format. Known are: {known}.")
    digest = hashlib.sha256(raw).hexdigest()
    return [replace(log, sha256=digest) for log in found]


def _content(path: Path) -> tuple[bytes, bytes]:
    """What is in a file, and the same unpacked."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise LogError(f"{path} is no regular file ({kind}) and is not read.")
    with path.open("rb") as file:
        raw = data = file.read(LARGEST_BYTES + 1)
    for opened in (PACKED[magic] for magic in PACKED if raw.startswith(magic)):
        if isinstance(opened, str):
            raise LogError(f"{path} is {opened}; unpack it first (gzip and xz are read).")
        with opened(io.BytesIO(raw)) as packed:
            data = packed.read(LARGEST_BYTES + 1)
    if max(len(raw), len(data)) > LARGEST_BYTES:
        raise LogError(f"{path} is larger than {LARGEST_BYTES >> 20} MB; give a part of it.")
    return raw, data


def _lines(text: str, notes: Notes) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; what a progress bar wrote over itself are several lines of one
    number. Those of DLLogger's file become as its text has them."""
    lines = text.split("\n")
    if lines[-1]:
        notes.append((len(lines), Message("no_line_end", {})))
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            notes.append((number, Message("line_too_long", {"characters": LONGEST_LINE})))
        for part in line[:LONGEST_LINE].split("\r"):
            yield number, _as_text(part) if '"data"' in part else part


def _as_text(line: str) -> str:
    """A record of DLLogger's file as the line that it prints; other lines as they are."""
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


def _recognised(lines: Lines, notes: Notes) -> LogFormat | None:
    """The first format of FORMATS that has a print among the lines; others, of whose prints it
    has none, are noted."""
    found: list[LogFormat] = []
    for some in (lines[:HEAD], lines):
        texts = [line for _number, line in some]
        whole, found = "\n".join(texts), []
        for form in FORMATS:
            own = (line for line in texts if form.match(line)) if form.key in whole else ()
            if any(not (found and found[0].match(line)) for line in own):
                found.append(form)
        if any(form.has_steps for form in found):
            break
    others = [form.name for form in found[1:] if form.has_steps]
    notes += [(0, Message("other_format", {"format": name})) for name in others]
    return found[0] if found else None


def _of_lines(path: Path, form: LogFormat, lines: Lines, notes: Notes) -> list[Log]:
    """The trainings in the lines of a file."""
    events = documents.events(lines)
    columns, rest = (
        _prints(form, lines) if form.has_steps else (documents.prints(events), lines)
    )
    try:
        prints = prints_of(columns)
    except (ValueError, ArithmeticError) as error:
        raise LogError(f"{path}: its numbers can't be computed with: {error}") from error
    semantics = _with_reader(form.semantics, prints)
    windows = _one_count_of_runs(windows_of(prints, semantics))
    own = [one for one in documents.reported_figures(rest) if not np.isnan(one.value)]
    reported = [*own[:REPORTED], *documents.reported(events)]
    if not form.has_steps and not len(windows) and not reported:
        raise LogError(f"{path}: lines of {form.name}, but no figure in them.")
    starts = windows["line"][np.unique(windows["run"], return_index=True)[1]]
    if form.has_steps:
        # Each training with its first print, in which there may be facts.
        firsts = {*starts.tolist()}
        rest = sorted([*rest, *(one for one in lines if one[0] in firsts)], key=itemgetter(0))
    segments = _segments(form, windows, rest)
    for _runs, facts in segments:
        facts.complete(path)
    known_ranks = {number_in(facts.found, "ranks") for _runs, facts in segments} - {0}

    def is_own(one: ReportedFigure, runs: Sequence[int], facts: Facts) -> bool:
        """Whether a figure is of these runs: of as many devices or, of those that don't say how
        many, behind their first print."""
        if one.ranks in known_ranks:
            return one.ranks == number_in(facts.found, "ranks")
        return max(np.searchsorted(starts, one.line) - 1, 0) in runs

    return [
        Log(
            path=path,
            format=form.name,
            sha256="",
            semantics=semantics,
            windows=windows[np.isin(windows["run"], runs)],
            facts=facts.found,
            reported=[one for one in reported if is_own(one, runs, facts)],
            notes=[*notes, *facts.notes.values()],
            part=part if len(segments) > 1 else 0,
        )
        for part, (runs, facts) in enumerate(segments, 1)
    ]


def _prints(form: LogFormat, lines: Lines) -> tuple[dict[str, list[Any]], Lines]:
    """The columns of a format's prints, each with what further lines of its step tell, and the
    lines that are none."""
    further = {*form.extra.groupindex} - {*form.line.groupindex} if form.extra else set()
    columns: dict[str, list[Any]] = {
        name: [] for name in ("line", "tag", *form.line.groupindex, *further)
    }
    rest: Lines = []
    for index, (number, line) in enumerate(lines):
        match = form.match(line)
        found = match or (form.extra and form.key in line and form.extra.search(line))
        if not found or (index == len(lines) - 1 and _is_cut(found)):
            rest.append((number, line))
            continue
        tag = TAG.search(line[: found.start()][-60:]) if "]<std" in line else None
        row = {"line": number, "tag": tag and tag[1], **found.groupdict()}
        if match:
            for name, values in columns.items():
                values.append(row.get(name))
        elif all(columns[name][-1:] == [row[name]] for name in ("tag", "epoch", "step")):
            for name in further:
                columns[name][-1] = row[name]
    return columns, rest


def _is_cut(match: re.Match[str]) -> bool:
    """Whether a number ends where the file does: it may have been cut off in it."""
    return len(match.string) in {match.end(k) for k in range(1, (match.re.groups or 0) + 1)}


def _with_reader(semantics: Semantics, prints: Prints) -> Semantics:
    """Where a format leaves open whether its times have the wait in them, and samples are
    printed beside: which of B / seconds and B / (reader + seconds) gives these, which are fewer
    where a file of the data set ended."""
    names = ("rate", "seconds", "reader", "samples")
    known = ~np.any([np.isnan(prints[name]) for name in names], axis=0)
    if semantics.reader or not known.any():
        return semantics
    rate, seconds, reader, samples = (prints[name][known] for name in names)
    alone, both = (
        np.median(np.abs(rate * time - samples.max())) for time in (seconds, seconds + reader)
    )
    return replace(semantics, reader="in") if alone < both else semantics


def _one_count_of_runs(windows: np.ndarray) -> np.ndarray:
    """The windows with their runs counted over all ranks: a rank that begins to print in a
    later training of the file has none of the earlier."""
    lines, runs = windows["line"], windows["run"]
    if runs.any():
        _, firsts, rank = np.unique(windows["rank"], return_index=True, return_inverse=True)
        # Where the trainings end of a rank that has most of them.
        most = rank == rank[runs.argmax()]
        ends = lines[most][np.flatnonzero(np.diff(runs[most]))]
        runs += np.searchsorted(ends, lines[firsts])[rank]
        runs[:] = np.unique(runs, return_inverse=True)[1]
    return windows


def _segments(
    form: LogFormat, windows: np.ndarray, lines: Lines
) -> list[tuple[list[int], Facts]]:
    """The trainings of a file that have one configuration: their runs, and its facts."""
    # What stands behind the last print of a training belongs to the next one.
    ends = windows["line"][::-1][np.unique(windows["run"][::-1], return_index=True)[1]]
    numbers = [number for number, _line in lines]
    cuts = [0, *(bisect_right(numbers, end) for end in ends[:-1][: RUNS - 1])]
    found: list[tuple[list[int], Facts]] = []
    for run, (begin, end) in enumerate(pairwise([*cuts, len(lines)])):
        facts = Facts(framework=form.framework, unit=form.unit)
        facts.read(lines[begin:end])
        before = found[-1][1].found if found else {}
        differs = any(
            name in before and before[name].value != fact.value and name not in ("input", "gpu")
            for name, fact in facts.found.items()
        )
        if found and not differs:
            found[-1][0].append(run)
            found[-1][1].found = facts.found | before
        else:
            facts.found = before | facts.found
            found.append(([run], facts))
    found[-1][0].extend(range(len(cuts), len(ends)))
    return found
