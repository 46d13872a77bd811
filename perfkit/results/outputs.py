"""All measurements of an outputs folder, checked against their raw files.

A check takes about 5 ms, seeing that no file of a measurement has changed since 0.05 ms. Checks
without a contradiction are therefore remembered, in the user's cache folder, where no outputs
folder from elsewhere can place anything.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic_core import from_json

from perfkit.config import resolved_path
from perfkit.results import CODE, code_digest
from perfkit.results.frames import Row, as_frame, row_of
from perfkit.results.store import (
    RESULT,
    Measurement,
    ResultError,
    folders,
    make_folder,
    read_file,
    write_atomically,
)
from perfkit.results.summarize import check_against_raw

SETTLED_NS = 60 * 10**9
"""Age at which a file counts as unchanged: file systems round times to up to a second, and the
clock of a file server may be late."""
KEPT_SECONDS = 30 * 86400
"""Age at which a stored memory is deleted: its outputs folder may be gone."""


T = TypeVar("T")


def load(outputs: str | Path) -> pd.DataFrame:
    """Return one row per measurement under `outputs`; a relative path starts at the checkout.

    Columns have the names of the parameters, plus `throughput`, `throughput_low` and
    `throughput_high` in `unit`, `repeat_throughputs` (a tuple with one value per complete
    repeat), effective settings (`effective.…`) and the environment (`environment.…`).
    `imported` is the format of an imported measurement's logs; its `effective.precision` is as
    stated by the logs or by hand. An empty cell is NaN in columns of numbers, else None.
    Results that can't be read or contradict their raw files are left out and named in
    `.attrs["unreadable"]`. Raises ResultError if there is no such folder.
    """
    return Checked(outputs).frame()


def measurements(outputs: str | Path, unreadable: list[str]) -> Iterator["Measurement"]:
    """Yield the measurements under `outputs` in the order of their folders.

    Measurements that can't be read, or contradict their raw files, are left out, and the
    reasons, with paths below `outputs`, are added to `unreadable`. Raises ResultError if there
    is no such folder.
    """
    checked = Checked(outputs)
    return checked.each(checked.read, unreadable)


class Checked:
    """The measurements of an outputs folder, each checked against its raw files unless a check
    that found no contradiction is remembered and its files are the same: names, inodes, sizes
    and times of last change (ctime, which can't be set)."""

    def __init__(self, outputs: str | Path) -> None:
        self.outputs = resolved_path(str(outputs))
        self.began_ns = time.time_ns()
        self.problems: dict[str, list[str] | None] = {}
        """Folder name -> contradictions, of measurements that were checked since the start."""
        self._before = self._stored()
        self._now: dict[str, Any] = {}

    @property
    def file(self) -> Path:
        """Where the checks are remembered. Raises RuntimeError for a user without a home."""
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        cache = given if given.is_absolute() else Path.home() / ".cache"
        name = _digest(os.fsencode(self.outputs))[:16]
        return resolved_path(str(cache)) / "perfkit" / f"{name}.json"

    def frame(self) -> pd.DataFrame:
        """Return the frame of `load`."""
        unreadable: list[str] = []
        frame = as_frame(self.each(self.row, unreadable))
        frame.attrs["unreadable"] = unreadable
        return frame

    def each(self, read: Callable[[Path], T], unreadable: list[str]) -> Iterator[T]:
        """Yield what `read` (of this object) returns for each measurement, and remember the
        checks. Reasons for unreadable ones are added to `unreadable`."""
        if not self.outputs.is_dir():
            raise ResultError(f"no folder {self.outputs}")
        for folder in folders(self.outputs):
            try:
                folder.name.encode()
                yield read(folder)
            except ResultError as error:
                reason = str(error).replace(f"{self.outputs}/", "")
                # The name of a raw file may not be UTF-8.
                unreadable.append(reason.encode(errors="backslashreplace").decode())
            except UnicodeEncodeError:
                unreadable.append(f"{folder.name!a}: the folder's name is not UTF-8")
        self._save()

    def row(self, folder: Path) -> Row:
        """Return the row of a measurement, which is read only if its files have changed. Raises
        ResultError as `read`."""
        known = self._unchanged(folder)
        if not known:
            return row_of(self.read(folder))
        # JSON has no tuples.
        return known["row"] | {"repeat_throughputs": tuple(known["row"]["repeat_throughputs"])}

    def read(self, folder: Path) -> Measurement:
        """Return the measurement in `folder`. Raises ResultError if it can't be read, is not
        that of a real device, or contradicts its raw files."""
        known, name = self._unchanged(folder), folder.name
        measurement = Measurement.read(folder)
        if measurement.result.is_fake:
            raise ResultError(f"{name}: from the fake accelerator: no measurement")
        if not known:
            if name not in self.problems:
                self.problems[name] = check_against_raw(measurement)
            if wrong := self.problems[name]:
                raise ResultError(f"{name}: contradicts its raw files: {wrong[0]}")
            self._remember(measurement)
        return measurement

    def _save(self) -> None:
        """Store what is remembered of the measurements that were asked for. Without a writable
        cache folder, or if the code was changed, they are checked again next time."""
        with suppress(OSError, RuntimeError):
            if self._now == self._before or code_digest() != CODE:
                return
            body = json.dumps(self._now)
            make_folder(self.file.parent)
            write_atomically(self.file, f"{_seal(body.encode())}\n{body}")
            for file in self.file.parent.iterdir():
                if file.stat().st_mtime < time.time() - KEPT_SECONDS:
                    file.unlink()

    def _remember(self, measurement: Measurement) -> None:
        folder = measurement.folder
        repeats = (folder / "repeats").rglob("*")
        names = [RESULT, "repeats", *(str(path.relative_to(folder)) for path in repeats)]
        files = _state(folder, names)
        plain = "".join(names).isascii()  # Names that are not UTF-8 can't be stored as JSON.
        if files and plain and max(files[2::3]) < self.began_ns - SETTLED_NS:
            known = {"names": names, "files": files, "row": row_of(measurement)}
            self._now[folder.name] = known

    def _unchanged(self, folder: Path) -> dict[str, Any] | None:
        known: dict[str, Any] | None = self._before.get(folder.name)
        wrong = self.problems.get(folder.name)
        if wrong or not known or _state(folder, known["names"]) != known["files"]:
            return None
        self._now[folder.name] = known
        return known

    def _stored(self) -> dict[str, Any]:
        with suppress(OSError, RuntimeError):
            seal, _newline, body = read_file(self.file).partition(b"\n")
            if seal.decode(errors="replace") == _seal(body):
                known: dict[str, Any] = from_json(body)
                return known
        return {}


def _seal(body: bytes) -> str:
    return _digest(CODE.encode() + body)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _state(folder: Path, names: Sequence[str]) -> list[int] | None:
    """Return inode, size and time of last change of these files; None if one is missing."""
    found, begin = [], f"{folder}/"
    try:
        for name in names:
            status = os.lstat(begin + name)
            found += [status.st_ino, status.st_size, status.st_ctime_ns]
    except OSError:
        return None
    return found
