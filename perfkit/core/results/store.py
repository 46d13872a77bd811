"""The folder of a measurement: its paths, atomic writes and strict reading."""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from perfkit.core.format import number as rounded
from perfkit.core.paths import results_path
from perfkit.core.results.schema import SCHEMA_VERSION, Result
from perfkit.core.script_config import TAGS
from perfkit.core.timing.raw_file import rank_file

RESULT, NOTEBOOK = "result.json", "notebook.ipynb"
"""File names in a measurement's folder."""
MOST_BYTES = 512 * 2**20
"""Largest size of a stored file."""
MOST_DIGITS = 16
"""Most digits of an integer in a stored file, more than a float has."""
UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")
"""Types of pydantic's errors about a field that a model or a dataclass lacks."""
PARTIAL = ".partial"
"""Suffix of a file that is being written."""
Events = list[dict[str, Any]]
"""The raw events of one rank."""


class ResultError(ValueError):
    """A stored file that can't be read as the expected type, or a stored folder that is not
    that of a measurement. `line` is the number of the line that is wrong, if there is one."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)
        self.path = path
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self._at(self.path)

    def relative_to(self, folder: Path) -> str:
        """Return the message with the path as seen from `folder`, if it lies there."""
        below = self.path.is_relative_to(folder)
        return self._at(self.path.relative_to(folder) if below else self.path)

    def _at(self, path: Path) -> str:
        # A name in a foreign folder may not be UTF-8.
        place = str(path).encode(errors="backslashreplace").decode()
        if self.line is not None:
            place += f":{self.line}"
        return f"{place}: {self.problem}"


Kind = TypeVar("Kind", bound=BaseModel)


@dataclass(frozen=True)
class Store:
    """Every path of one measurement, whose id is the folder's name.

    outputs/<id>/result.json                 the measurement (Result), replaced atomically
    outputs/<id>/repeats/<k>/rank<r>.jsonl   raw events of one rank, appended as they happen
    outputs/<id>/repeats/<k>/telemetry.jsonl telemetry samples during the repeat
    outputs/<id>/logs/<k>-<name>.log         output of a worker or the launcher
    outputs/<id>/notebook.ipynb, report.html its notebook with outputs, and its page in English
    outputs/<id>/.lock                       held while measuring
    """

    folder: Path

    @property
    def result_file(self) -> Path:
        return self.folder / RESULT

    @property
    def page_file(self) -> Path:
        return self.folder / "report.html"

    @property
    def lock_file(self) -> Path:
        return self.folder / ".lock"

    @property
    def log_folder(self) -> Path:
        return self.folder / "logs"

    def log_file(self, repeat: int, name: str) -> Path:
        return self.log_folder / f"{repeat}-{name}.log"

    def raw_folder(self, repeat: int) -> Path:
        return self.folder / "repeats" / str(repeat)

    def rank_file(self, repeat: int, rank: int) -> Path:
        return rank_file(self.raw_folder(repeat), rank)

    def telemetry_file(self, repeat: int) -> Path:
        return self.raw_folder(repeat) / "telemetry.jsonl"

    def raw_files(self) -> list[Path]:
        """Return all existing raw files in the order of the repeats and ranks."""
        paths = self.folder.glob("repeats/*/*.jsonl")
        return sorted(paths, key=lambda path: _in_order(path.parent.name, path.name))

    def log_files(self) -> list[Path]:
        """Return all existing logs in the order of the repeats and ranks."""
        paths = self.log_folder.glob("*.log")
        return sorted(paths, key=lambda path: _in_order(path.name.split("-")[0], path.name))


def _in_order(repeat: str, name: str) -> tuple[int, list[str | int]]:
    """Return a sort key with repeat 2 before 10, and rank2 before rank10."""
    # Texts and numbers alternate, and a text is first: keys are comparable.
    parts = re.split(r"([0-9]+)", name)
    numbered = [int(part) if index % 2 else part for index, part in enumerate(parts)]
    return (int(repeat) if repeat.isdigit() else 0, numbered)


@dataclass(frozen=True)
class Measurement(Store):
    """A stored measurement: its folder and the contents of `result.json`."""

    result: Result

    @classmethod
    def read(cls, folder: str | Path) -> "Measurement":
        """Read the measurement in `folder`; relative paths start in the working directory.
        Raises ResultError if it can't be read, or if the folder's name is not its id."""
        folder = results_path(folder)
        path = Store(folder).result_file
        result = read_result(path)
        if result.id != folder.name:
            problem = f"its id is {result.id[:80]!r}, which must be the name of its folder"
            raise ResultError(path, problem)
        return cls(folder, result)

    def __repr__(self) -> str:
        throughput = self.result.throughput
        rate = "no number"
        if throughput:
            rate = f"{rounded(throughput.value)} {throughput.unit}"
        return f"Measurement({self.result.id}: {self.result.status}, {rate})"


def read_result(path: Path) -> Result:
    """Read the Result in `path`. Raises ResultError if the content is anything else, or if a
    folder of raw files beside it is a link."""
    repeats = path.parent / "repeats"
    raw_folders = [repeats, *repeats.glob("*")]
    if any(os.path.islink(folder) for folder in raw_folders):  # noqa: PTH114
        raise ResultError(repeats, "has a link, which is not followed")
    return read_as(Result, path, SCHEMA_VERSION)


def read_as(model: type[Kind], path: Path, *schema_versions: int) -> Kind:
    """Read `path` as `model` of one of these versions, the newest last. Raises ResultError if
    the content is anything else."""
    try:
        text = read_file(path)
        _check_version(text, schema_versions)
        return model.model_validate_json(text)
    except OSError as error:
        why = str(error.strerror)
    except ValidationError as error:
        why = _first_problem(error)
    except (UnicodeError, json.JSONDecodeError, RecursionError) as error:
        why = f"not JSON, perhaps cut off ({error})"
    except ValueError as error:
        why = str(error)
    raise ResultError(path, textwrap.shorten(why, 200, placeholder=" …"))


def _first_problem(error: ValidationError) -> str:
    """Return the first invalid field, if the problem is that of a field, and its problem."""
    first = error.errors()[0]
    if first["type"] in UNKNOWN_FIELD:
        problem = "unknown field; if a newer perfkit wrote it, update perfkit"
    else:
        # The message of a ValueError that a validator raised.
        problem = str(first.get("ctx", {}).get("error", first["msg"]))
    field = ".".join(str(part) for part in first["loc"] if part not in TAGS)
    return f"{field}: {problem}" if field else problem


def _check_version(text: bytes, readable: Sequence[int]) -> None:
    """Check the version. Raises ValueError for another version, a duplicate key, or an integer
    of too many digits."""
    content = json.loads(text, object_pairs_hook=_without_doubles, parse_int=_short_integer)
    version = None
    if isinstance(content, dict):
        version = content.get("schema_version")
    if type(version) is int and version in readable:
        return
    versions = " or ".join(map(str, readable))
    problem = f"schema_version is {version!r}, this perfkit reads {versions}"
    if type(version) is int:
        is_older = version < readable[-1]
        problem += ", written by an older one" if is_older else ", and is newer"
    raise ValueError(problem)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"the key {name!r} is given twice")
        content[name] = value
    return content


def _short_integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of over {MOST_DIGITS} digits")
    return int(digits)


def open_stored(path: Path, most: int = MOST_BYTES) -> BinaryIO:
    """Open an untrusted stored file for reading: a regular file of at most `most` bytes. Links,
    pipes and devices are not opened. Raises OSError."""
    status = path.lstat()
    why = ""
    if stat.S_ISLNK(status.st_mode):
        why = "a link, which is not followed"
    elif not stat.S_ISREG(status.st_mode):
        why = "not a regular file"
    elif status.st_size > most:
        why = f"over {most / 2**20:g} MiB, too large"
    if why:
        raise OSError(errno.EINVAL, why, str(path))
    # The file may have been replaced since.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a stored file. Raises OSError, which names the file."""
    with open_stored(path, most) as stream:
        try:
            return stream.read(most)
        except OSError as error:
            # Unlike open, a failed read does not name the file.
            error.filename = str(path)
            raise


def refuse_links(folder: Path) -> None:
    """Raise OSError if the path of a folder to write to contains a link: stored folders are
    untrusted, and so are links in them."""
    if os.path.realpath(folder) != os.path.abspath(folder):  # noqa: PTH100
        raise OSError(errno.ELOOP, "a link leads there, which is not followed", str(folder))


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they don't exist. Raises OSError."""
    refuse_links(folder)
    folder.mkdir(parents=True, exist_ok=True)


def write_result(folder: Path, result: Result) -> None:
    """Replace `folder/result.json` atomically. Raises OSError."""
    write_atomically(Store(folder).result_file, result.model_dump_json(indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`: a reader sees the old file or the new one, never a part.

    Raises OSError, which names the file, also if the path of its folder contains a link.
    """
    refuse_links(path.parent)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError):
            # Unlike open, a failed write does not name the file.
            error.filename = str(path)
        raise


def read_raw_files(folder: Path) -> dict[str, bytes]:
    """Return name -> content of a repeat's raw files. Raises OSError."""
    return {path.name: read_file(path) for path in sorted(folder.glob("*.jsonl"))}


def raw_digests(raw_files: Mapping[str, bytes]) -> dict[str, str]:
    """Return name -> SHA-256 of each raw file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in raw_files.items()}


def read_events(path: Path) -> Events:
    """Return the raw events of one rank, by `parse_events`. Raises OSError and ResultError."""
    return parse_events(read_file(path), path)


def parse_events(content: bytes, path: Path) -> Events:
    """Return the raw events in the content of `path`. A truncated last line, after a kill or on
    a full disk, is left out. Raises ResultError, with the line number, for any other line that
    is not a JSON object."""
    lines = content.split(b"\n")[:-1]
    with contextlib.suppress(ValueError):
        # Parsing all lines at once takes a third of the time.
        events: Events = from_json(b"[%s]" % b",".join(lines))
        if len(events) == len(lines) and all(type(event) is dict for event in events):
            return events
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = from_json(line)
            if not isinstance(event, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise ResultError(path, str(error), line=number) from error
        events.append(event)
    return events


def folders(outputs: Path) -> Iterator[Path]:
    """Yield the measurement folders under `outputs` by name, including inaccessible ones, which
    their reader reports. Raises OSError."""
    if not outputs.is_dir():
        return
    for folder in sorted(outputs.iterdir(), key=lambda folder: folder.name):
        try:
            Store(folder).result_file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass
        yield folder
