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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.logs import documents, mlperf
from perfkit.logs.config_facts import Facts
from perfkit.logs.formats import FORMATS, SUMMARIES, WHOLE, LogFormat, Prints
from perfkit.logs.log import Log, LogError, ReportedFigure
from perfkit.logs.windows import prints_of, windows_of
from perfkit.messages import Message

LARGEST_BYTES = 128 * 1024 * 1024
"""How long a file may be, when it is unpacked: real logs have a few MB."""
LONGEST_LINE = 100_000
"""Characters; the rest of a longer line is left out."""
HEAD = 2000
"""So many lines with a format's key are tried to recognise it, in a thousand times as many
characters, before all are."""
REPORTED = 10_000
MOST_LINES = 4_000_000
"""More would take more than 2 GB; the longest logs have a fifth of that."""
RUNS = 100
"""How many of its own figures are kept of one log, and of how many trainings the facts."""
UNPACK: dict[bytes, Callable[[io.BytesIO], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"\xfd7zXZ": lzma.LZMAFile,
}
ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}
TAG = re.compile(r"\[\d{1,9},(\d{1,5})\]<std(?:out|err)>: ?$")
"""What `mpirun --tag-output` puts before a line."""
ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
Lines = list[tuple[int, str]]


# Numbers of any size may be printed, and divided by.
@np.errstate(all="ignore")
def read_logs(path: Path, given: LogFormat | None = None) -> list[Log]:
    """The trainings of a file: several if their configurations differ, else one. With `given`,
    prints are those of this format. Raises LogError where the file can't be read, is empty, too
    large or in no known format."""
    try:
        raw = _raw(path)
        data = _unpacked(path, raw)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise LogError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error
    if not data:
        raise LogError(f"{path} is empty.")
    if data.count(b"\n") + data.count(b"\r") > MOST_LINES:
        raise LogError(f"{path} has over {MOST_LINES:,} lines; give a part of it.")
    notes: list[tuple[int, Message]] = []
    if nuls := data.count(b"\0"):
        data = data.replace(b"\0", b"")
        notes.append((0, Message("nul_bytes", {"count": nuls})))
    text = data.decode("utf-8", "replace")
    text = ESCAPE.sub("", text) if "\x1b" in text else text
    lines = [*_lines(text, notes)]
    form = given or _recognised(text, notes)
    if form is None or not (form.has_steps or ":::ML" in text or form is SUMMARIES):
        form = None
    found = _of_lines(path, form, lines, notes) if form else _of_document(path, text)
    digest = hashlib.sha256(raw).hexdigest()
    return [replace(log, sha256=digest) for log in found]


def _raw(path: Path) -> bytes:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise LogError(f"{path}: Is a directory.")
    if not stat.S_ISREG(status.st_mode):
        raise LogError(f"{path} is no regular file (a pipe, socket or device) and is not read.")
    with path.open("rb") as file:
        return _limited(path, file)


def _limited(path: Path, file: Any) -> bytes:
    data: bytes = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise LogError(f"{path} is larger than {LARGEST_BYTES >> 20} MB; give a part of it.")
    return data


def _unpacked(path: Path, raw: bytes) -> bytes:
    for magic, name in ARCHIVES.items():
        if raw.startswith(magic):
            raise LogError(f"{path} is {name}; unpack it first (gzip and xz are read).")
    for magic, opened in UNPACK.items():
        if raw.startswith(magic):
            with opened(io.BytesIO(raw)) as file:
                return _limited(path, file)
    return raw


def _lines(text: str, notes: list[tuple[int, Message]]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; what a progress bar wrote over itself are several lines of one
    number. Parameters in DLLogger's file become as its text has them."""
    lines = text.split("\n")
    if lines[-1]:
        notes.append((len(lines), Message("no_line_end", {})))
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            notes.append((number, Message("line_too_long", {"characters": LONGEST_LINE})))
        for part in line[:LONGEST_LINE].split("\r") if "\r" in line else (line[:LONGEST_LINE],):
            yield number, _parameters(part) if '"PARAMETER"' in part else part


def _parameters(line: str) -> str:
    record = documents.record_of(line)
    if record is None:
        return line
    return "PARAMETER " + " ".join(f"{name} : {v} " for name, v in record["data"].items())


def _recognised(text: str, notes: list[tuple[int, Message]]) -> LogFormat | None:
    """The first format of FORMATS that has a print in the text; others, of whose lines it has
    none, are noted."""
    for limit in (HEAD, None):
        found: list[LogFormat] = []
        part = text[: limit and HEAD * 1000]
        for form in FORMATS:
            keyed = islice(_lines_with(form.key, part), limit)
            own = (line for line in keyed if form.line.search(line))
            if any(not (found and found[0].match(line)) for line in own):
                found.append(form)
        if any(form.has_steps for form in found) or (found and limit is None):
            others = [form.name for form in found[1:] if form.has_steps]
            notes += [(0, Message("other_format", {"format": name})) for name in others]
            return found[0]
    return None


def _lines_with(key: str, text: str) -> Iterator[str]:
    place = text.find(key)
    while place >= 0:
        begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        end = len(text) if end < 0 else end
        yield text[begin : min(end, begin + LONGEST_LINE)]
        place = text.find(key, end)


def _of_lines(
    path: Path, form: LogFormat, lines: Lines, notes: list[tuple[int, Message]]
) -> list[Log]:
    """The trainings in the lines of a file."""
    rows, rest = _matches(form, lines) if form.has_steps else ([], lines)
    prints = _prints(form, rows)
    events = mlperf.events(rest) if any(":::ML" in line for _number, line in rest) else []
    if not form.has_steps:
        prints = mlperf.prints(events)
    semantics = form.infer(form.semantics, prints)
    windows = _one_count_of_runs(windows_of(prints, semantics))
    reported = [*islice(_reported(form, rest), REPORTED), *mlperf.reported(events)]
    if not form.has_steps and windows.empty and not reported:
        raise LogError(f"{path}: lines of {form.name}, but no figure in them.")
    firsts = windows.groupby("run")["line"].min()
    # Each training with its first print, in which there may be facts.
    begins = {*firsts} if form.has_steps else set()
    of_runs = [one for one in lines if one[0] in begins] if begins else []
    segments = _segments(form, windows, sorted([*rest, *of_runs], key=itemgetter(0)))
    for _runs, facts in segments:
        facts.complete(path)
    known_ranks = {facts.number("ranks") for _runs, facts in segments} - {0}
    starts, several = [*firsts], len(segments) > 1

    def is_own(one: ReportedFigure, runs: Sequence[int], facts: Facts) -> bool:
        """Whether a figure is of these runs: of as many devices or, of those that don't say how
        many, behind their first print."""
        if one.ranks in known_ranks:
            return one.ranks == facts.number("ranks")
        return max(bisect_left(starts, one.line) - 1, 0) in runs

    return [
        Log(
            path=path,
            format=form.name,
            sha256="",
            semantics=semantics,
            windows=windows[windows["run"].isin(runs)].reset_index(drop=True)
            if several
            else windows,
            facts=facts.found,
            reported=[one for one in reported if not several or is_own(one, runs, facts)],
            notes=[*notes, *facts.notes],
            part=part if several else 0,
        )
        for part, (runs, facts) in enumerate(segments, 1)
    ]


def _one_count_of_runs(windows: pd.DataFrame) -> pd.DataFrame:
    """A rank that begins to print in a later training of the file has none of the earlier."""
    most = windows.groupby("rank")["run"].max()
    if most.empty or most.max() == 0:
        return windows
    reference = windows[windows["rank"] == most.idxmax()].groupby("run")["line"].max()[:-1]
    firsts = windows.groupby("rank")["line"].transform("min")
    missed = np.searchsorted(reference.to_numpy(), firsts)
    return windows.assign(run=windows["run"] + missed)


def _matches(form: LogFormat, lines: Lines) -> tuple[list[tuple[Any, ...]], Lines]:
    """The groups of each print behind its line, rank and whether it is a further line of its
    step; and the other lines."""
    rows, rest = [], []
    names = [*form.line.groupindex]
    last = lines[-1][0] if lines and lines[-1][1] else None
    for number, line in lines:
        match, further = form.match(line), False
        if match is None and form.extra and form.key in line:
            match, further = form.extra.search(line), True
        if match is None or (number == last and _is_cut(match)):
            rest.append((number, line))
            continue
        tag = TAG.search(line[: match.start()][-60:]) if "]<std" in line else None
        found = match.groupdict() if further else None
        groups = match.groups() if found is None else [found.get(name) for name in names]
        reader = found.get("reader") if found else None
        rows.append((number, int(tag[1]) if tag else -1, further, reader, *groups))
    return rows, rest


def _is_cut(match: re.Match[str]) -> bool:
    """Whether a number ends where the file does: it may have been cut off in it."""
    return len(match.string) in {match.end(k) for k in range(1, (match.re.groups or 0) + 1)}


def _prints(form: LogFormat, rows: Sequence[tuple[Any, ...]]) -> Prints:
    """The prints that these rows of texts are."""
    if not rows:
        return prints_of(0)
    names = ["line", "tag", "further", "of_further", *form.line.groupindex]
    texts: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
    found: dict[str, Any] = {}
    for name, values in texts.items():
        if name in ("line", "tag", "further", "at"):
            continue
        numbers = np.array([float(text or "nan") for text in values])
        # Of several accuracies the lowest.
        column = "accuracy" if name.startswith("accuracy") else name
        found[column] = np.fmin(found.get(column, np.nan), numbers)
    for name, not_printed in WHOLE.items():
        if name in found:
            found[name] = np.nan_to_num(found[name], nan=not_printed).astype("int64")
    if "since_index" in found:
        found["since"] = found.pop("since_index") + 1
    if "begin" in found:
        begin = found.pop("begin")
        found["since"] = np.where(begin >= 0, found["step"] - begin, 0)
    tags = np.array(texts["tag"])
    named = found.get("rank", tags)
    found["rank"] = np.where(named >= 0, named, tags)
    inverse = 1 / found.pop("steps_per_second", np.array([np.nan]))
    milliseconds = found.pop("milliseconds", np.array([np.nan])) / 1000
    found["seconds"] = np.fmax(np.fmax(found.get("seconds", np.nan), milliseconds), inverse)
    if "loss" in found:
        # Infinite is what is printed and no number.
        is_printed = np.array([text is not None for text in texts["loss"]])
        found["loss"] = np.where(is_printed & np.isnan(found["loss"]), np.inf, found["loss"])
    clock = found.pop("clock", np.nan)
    found["at"] = _moments(texts["at"]) if "at" in texts else clock
    of_further = found.pop("of_further")
    if form.extra is None:
        return prints_of(len(rows), line=texts["line"], **found)
    prints = prints_of(len(rows), line=texts["line"], **found | {"reader": of_further})
    of_print = np.cumsum(~np.array(texts["further"]))
    frame = pd.DataFrame(prints)[of_print > 0]
    of_print = of_print[of_print > 0]
    place = frame[["rank", "epoch", "step"]]
    same = (place == place.groupby(of_print).transform("first")).all(axis=1)
    whole = frame[same].groupby(of_print[same]).first()
    return {name: whole[name].to_numpy() for name in whole}


def _moments(texts: Sequence[str | None]) -> np.ndarray:
    """Clock readings in seconds; of any zone, for differences."""
    if ":" not in (next(filter(None, texts), None) or ""):
        return np.array([float(text or "nan") for text in texts])
    iso = [text and text.replace("/", "-").replace(",", ".") for text in texts]
    moments = pd.to_datetime(iso, format="ISO8601", utc=True, errors="coerce")
    return np.where(moments.isna(), np.nan, moments.as_unit("us").asi8 / 1e6)


def _reported(form: LogFormat, rest: Lines) -> Iterator[ReportedFigure]:
    """The log's own figures among what are no prints."""
    if "DLL" in form.key or form.key == '"data"' or form.framework == "mxnet":
        yield from documents.dllogger_figures(rest)
    for unit, pattern in form.reported:
        for number, line in rest:
            if match := pattern.search(line):
                groups = match.groupdict("")
                name = f"{groups.get('where', '')} {groups.get('name', '')}".strip()
                yield documents.figure(name, groups["value"], unit, number)


def _segments(
    form: LogFormat, windows: pd.DataFrame, rest: Lines
) -> list[tuple[list[int], Facts]]:
    """The trainings of a file that have one configuration: their runs, and its facts."""
    # What stands behind the last print of a training belongs to the next one.
    ends = [*windows.groupby("run")["line"].max()][:RUNS]
    numbers = [number for number, _line in rest]
    cuts = [0, *(bisect_right(numbers, end) for end in ends[:-1]), len(rest)]
    found: list[tuple[list[int], Facts]] = []
    for run, (begin, end) in enumerate(pairwise(cuts)):
        facts = Facts(framework=form.framework, unit=form.unit)
        facts.read(rest[begin:end])
        before = found[-1][1].found if found else {}
        if found and all(
            name not in before or before[name].value == fact.value or name in ("input", "gpu")
            for name, fact in facts.found.items()
        ):
            found[-1][0].append(run)
            for name, fact in facts.found.items():
                before.setdefault(name, fact)
        else:
            for name, fact in before.items():
                facts.found.setdefault(name, fact)
            found.append(([run], facts))
    later = [*range(len(cuts) - 1, int(windows["run"].max()) + 1)] if len(windows) else []
    found[-1][0].extend(later)
    return found


def _of_document(path: Path, text: str) -> list[Log]:
    """A file that is one JSON object or a table."""
    contents = documents.read(path, text)
    if contents is None:
        known = "; ".join([*(form.name for form in FORMATS), *documents.NAMES])
        raise LogError(f"{path} is in no known format. Known are: {known}.")
    facts = Facts(**contents.facts)
    facts.complete(path)
    windows = windows_of(contents.prints, contents.semantics)
    found = (contents.semantics, windows, facts.found, contents.reported)
    return [Log(path, contents.name, "", *found)]
