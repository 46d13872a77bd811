"""The folder of a measurement: its paths, atomic writes and reading."""

import contextlib
import hashlib
import os
import re
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from perfkit.measuring.format import number as rounded
from perfkit.measuring.paths import results_path
from perfkit.measuring.results.schema import Result
from perfkit.timing.raw_file import rank_file

RESULT, NOTEBOOK = "result.json", "notebook.ipynb"
"""File names in a measurement's folder."""
PARTIAL = ".partial"
"""Suffix of a file that is being written."""
Events = list[dict[str, Any]]
"""The raw events of one rank."""


class ResultError(ValueError):
    """A stored file that can't be read as the expected type, or a stored folder that is not
    that of a measurement."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"

    def relative_to(self, folder: Path) -> str:
        """Return the message with the path as seen from `folder`, if it lies there."""
        return str(self).removeprefix(f"{folder}/")


Kind = TypeVar("Kind", bound=BaseModel)


@dataclass(frozen=True)
class Store:
    """Every path of one measurement, whose id is the folder's name.

    outputs/<id>/result.json                 the measurement (Result), replaced atomically
    outputs/<id>/repeats/<k>/rank<r>.jsonl   raw events of one rank, appended as they happen
    outputs/<id>/repeats/<k>/telemetry.jsonl telemetry samples during the repeat
    outputs/<id>/logs/<k>-<name>.log         output of a worker or the launcher
    outputs/<id>/profile/                    traces of the profiled run, or why it failed
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

    @property
    def profile_folder(self) -> Path:
        return self.folder / "profile"

    @property
    def profile_failure_file(self) -> Path:
        return self.profile_folder / "failure.txt"

    def trace_files(self) -> dict[int, Path]:
        """Return the traces of the profiled ranks, in their order."""
        traces = sorted(self.profile_folder.glob("rank*.json.gz"), key=_by_numbers)
        return {int(trace.name[len("rank") :].partition(".")[0]): trace for trace in traces}

    def raw_files(self) -> list[Path]:
        """Return all existing raw files in the order of the repeats and ranks."""
        return sorted(self.folder.glob("repeats/*/*.jsonl"), key=_by_numbers)

    def log_files(self) -> list[Path]:
        """Return all existing logs in the order of the repeats and ranks."""
        return sorted(self.log_folder.glob("*.log"), key=_by_numbers)


def _by_numbers(path: Path) -> str:
    """Return a sort key with repeat 2 before 10, and rank2 before rank10."""
    return re.sub("[0-9]+", lambda number: number[0].zfill(9), str(path))


@dataclass(frozen=True)
class Measurement(Store):
    """A stored measurement: its folder and the contents of `result.json`."""

    result: Result

    @classmethod
    def read(cls, folder: str | Path) -> "Measurement":
        """Read the measurement in `folder`; relative paths start in the working directory.
        Raises ResultError if it can't be read."""
        folder = results_path(folder)
        return cls(folder, read_result(Store(folder).result_file))

    def __repr__(self) -> str:
        throughput = self.result.throughput
        rate = "no number"
        if throughput:
            rate = f"{rounded(throughput.value)} {throughput.unit}"
        return f"Measurement({self.result.id}: {self.result.status}, {rate})"


def read_result(path: Path) -> Result:
    """Read the Result in `path`. Raises ResultError if the content is anything else."""
    return read_as(Result, path)


def read_as(model: type[Kind], path: Path) -> Kind:
    """Read `path` as `model`. Raises ResultError if the content is anything else."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        why = str(error.strerror)
    except ValidationError as error:
        why = _first_problem(error)
    raise ResultError(path, textwrap.shorten(why, 200, placeholder=" …"))


def _first_problem(error: ValidationError) -> str:
    """Return the version if it is another, else the first invalid field and its problem."""
    errors = error.errors()
    for each in errors:
        if each["loc"] == ("schema_version",) and each["type"] == "literal_error":
            expected = each["ctx"]["expected"]
            return f"schema_version is {each['input']!r}, this perfkit reads {expected}"
    first = errors[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]


def write_result(folder: Path, result: Result) -> None:
    """Replace `folder/result.json` atomically. Raises OSError."""
    write_atomically(Store(folder).result_file, result.model_dump_json(indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`: a reader sees the old file or the new one, never a part.

    Raises OSError, which names the file.
    """
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
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


def raw_digests(raw_files: Mapping[str, bytes]) -> dict[str, str]:
    """Return name -> SHA-256 of each raw file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in raw_files.items()}


def read_events(path: Path) -> Events:
    """Return the raw events of one rank, by `parse_events`. Raises OSError and ResultError."""
    return parse_events(path.read_bytes(), path)


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
            raise ResultError(path, f"line {number}: {error}") from error
        events.append(event)
    return events


def folders(outputs: Path) -> list[Path]:
    """Return the measurement folders under `outputs` by name."""
    return sorted(path.parent for path in outputs.glob(f"*/{RESULT}"))
