"""The folder of a measurement: its paths, atomic writes and strict reading."""

import contextlib
import errno
import json
import os
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from perfkit.results.schema import SCHEMA_VERSION, Result

RESULT, NOTEBOOK = "result.json", "notebook.ipynb"
"""Names of files of a measurement."""
RESERVE_BYTES = 64 * 1024
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What a write fails with for want of room: on the disk, or in the user's share of it."""
PARTIAL = ".partial"
"""How the name of a file ends that is being written."""
Events = list[dict[str, Any]]
"""The raw events of one rank."""


class ResultError(ValueError):
    """A stored file can't be read as what it should be; the message names file and reason."""


Kind = TypeVar("Kind", bound=BaseModel)


@dataclass(frozen=True)
class Store:
    """Every path of one measurement, whose id is the folder's name.

    outputs/<id>/result.json                 the measurement (Result), replaced atomically
    outputs/<id>/repeats/<k>/rank<r>.jsonl   raw events of one rank, appended as they happen
    outputs/<id>/repeats/<k>/telemetry.jsonl samples of the machine meanwhile
    outputs/<id>/repeats/<k>/windows.jsonl   instead of both: what an imported log prints
    outputs/<id>/logs/<k>-<name>.log         what a worker or the launcher printed
    outputs/<id>/notebook.ipynb, report.html its notebook with outputs, and its page in English
    outputs/<id>/.lock, .reserve             held while it is measured; room for a last write
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
    def reserve_file(self) -> Path:
        return self.folder / ".reserve"

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

    def windows_file(self, repeat: int) -> Path:
        return self.raw_folder(repeat) / "windows.jsonl"

    def raw_files(self) -> list[Path]:
        """All raw files that are there, in the order of the repeats."""
        paths = self.folder.glob("repeats/*/*.jsonl")
        return sorted(paths, key=lambda path: _in_order(path.parent.name, path.name))

    def log_files(self) -> list[Path]:
        """All logs that are there, in the order of the repeats."""
        paths = self.log_folder.glob("*.log")
        return sorted(paths, key=lambda path: _in_order(path.name.split("-")[0], path.name))


def _in_order(repeat: str, name: str) -> tuple[int, str]:
    """Repeat 2 before 10."""
    return (int(repeat) if repeat.isdigit() else 0, name)


def rank_file(raw_folder: Path, rank: int) -> Path:
    """The raw file of a rank in the folder that workers write into."""
    return raw_folder / f"rank{rank}.jsonl"


@dataclass(frozen=True)
class Measurement(Store):
    """A stored measurement: its folder and what `result.json` in it says."""

    result: Result

    @classmethod
    def read(cls, folder: Path) -> "Measurement":
        """The measurement in `folder`. Raises ResultError if there is none to be read, or it
        lies in a folder of another name."""
        path = Store(folder).result_file
        result = read_result(path)
        if result.id != folder.name:
            raise ResultError(
                f"{path}: its id is {result.id[:80]!r}; a measurement lies in a folder of that "
                "name, once"
            )
        return cls(folder, result)

    def __repr__(self) -> str:
        number = self.result.throughput
        shown = f"{number.value:.4g} {number.unit}" if number else "no number"
        return f"Measurement({self.result.id}: {self.result.status}, {shown})"


def read_result(path: Path) -> Result:
    """The Result in `path`. Raises ResultError for anything that is not exactly one."""
    return read_as(Result, path, SCHEMA_VERSION)


def read_as(model: type[Kind], path: Path, schema_version: int) -> Kind:
    """What is stored in `path`, as `model` of that version has it. Raises ResultError for
    anything that is not exactly one."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        why = _why_unreadable(text, error, schema_version)
        raise ResultError(f"{path}: {textwrap.shorten(why, 200, placeholder=' …')}") from error


def _why_unreadable(text: bytes, error: ValidationError, readable: int) -> str:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as fault:
        return f"not JSON, perhaps cut off ({fault})"
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != readable:
        age = ""
        if type(version) is int:
            age = ", written by an older one" if version < readable else ", and is newer"
        return f"schema_version is {version!r}, this perfkit reads {readable}{age}"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}"


def write_result(folder: Path, result: Result) -> None:
    """Replace `folder/result.json` atomically, with a reserve file beside it.

    Raises OSError if there is no room for both. The reserve is given up then, so that a last
    word, `write_last_result`, can still be written.
    """
    reserve = Store(folder).reserve_file
    try:
        if not reserve.exists():
            write_atomically(reserve, " " * RESERVE_BYTES)
        write_last_result(folder, result)
    except OSError:
        reserve.unlink(missing_ok=True)
        raise


def write_last_result(folder: Path, result: Result) -> None:
    """Replace `folder/result.json` atomically, reserve or not. Raises OSError."""
    write_atomically(Store(folder).result_file, result.model_dump_json(indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`: a reader sees the old file or the new one, never a part.

    Raises OSError, which names the file.
    """
    descriptor, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
    try:
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
            # A write that fails does not name the file, unlike an open.
            error.filename = str(path)
        raise


def read_events(path: Path) -> Events:
    """The raw events of one rank. A last line that is cut off, by a kill or a full disk, is
    left out; any other line that is no JSON object raises ResultError with its number."""
    lines = path.read_bytes().split(b"\n")
    if all(
        line[:1] == b"{" and line[-1:] == b"}" and b"},{" not in line for line in lines[:-1]
    ):
        # All at once takes half the time; line by line shows which line is wrong.
        with contextlib.suppress(ValueError, RecursionError):
            every: Events = json.loads(b"[" + b",".join(lines[:-1]) + b"]")
            if len(every) == len(lines) - 1:
                return every
    events = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise ResultError(f"{path}:{number}: {error}") from error
        events.append(event)
    return events


def folders(outputs: Path) -> Iterator[Path]:
    """The measurement folders under `outputs`, by name."""
    for path in sorted(outputs.glob(f"*/{RESULT}")):
        yield path.parent
