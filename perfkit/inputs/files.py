"""The list of training files, and what can be wrong with it.

`train_list.txt` holds one `path label` a line, paths relative to the data folder: the layout
of the published suites, so that ImageNet as they lay it out works unchanged.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from perfkit.config import Config
from perfkit.models import MODELS
from perfkit.models.data import CLASSES

LIST = "train_list.txt"
SHOWN = 5
HEADERS_READ = 10_000


class InputError(ValueError):
    """The data can't be trained on; the message names the file, and line or dataset."""


class FileList(NamedTuple):
    """Parsed train_list.txt: image n is paths[n], labels[n], on line n + 1."""

    file: Path
    sha256: str
    paths: list[str]
    labels: list[int]


def read_list(data_dir: Path) -> FileList:
    """Parse `data_dir/train_list.txt`. Raises InputError naming the lines that are wrong."""
    file = data_dir / LIST
    try:
        content = file.read_bytes()
        lines = content.decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{file}:{line}: not UTF-8 text") from error
    if not lines:
        raise InputError(f"{file}: is empty; expected one `path label` a line")
    paths, labels, problems = [], [], []
    for number, text in enumerate(lines, 1):
        path, _, label = text.rpartition(" ")
        if not path.strip():
            problems.append(f"{file}:{number}: expected `path label`, found {text[:80]!r}")
        elif not (label.isascii() and label.isdigit()) or int(label) >= CLASSES:
            problems.append(
                f"{file}:{number}: label {label[:20]!r} is not a whole number below {CLASSES}"
            )
        else:
            paths.append(path)
            labels.append(int(label))
    raise_if_any(problems)
    return FileList(file, hashlib.sha256(content).hexdigest(), paths, labels)


def check_files(listed: FileList) -> None:
    """See that every listed file exists, and that the first HEADERS_READ begin as images do.

    Folders are listed once each rather than files asked for one by one: ImageNet has a
    thousand folders and 1.28 million files. What lies behind the header shows when the file
    is decoded; `line_of` then finds its line. Raises InputError.
    """
    present: dict[str, set[str]] = {}
    problems = []
    for number, path in enumerate(listed.paths, 1):
        folder, name = os.path.split(path)
        if folder not in present:
            directory = listed.file.parent / folder
            present[folder] = set()
            if directory.is_dir():
                present[folder] = {entry.name for entry in os.scandir(directory)}
        if name not in present[folder]:
            problems.append(f"{listed.file}:{number}: no such file: {path}")
        elif number <= HEADERS_READ and (reason := _unreadable(listed.file.parent / path)):
            problems.append(f"{listed.file}:{number}: {path}: {reason}")
    raise_if_any(problems)


def line_of(listed: FileList, message: str) -> str:
    """Where the file that a decoder's `message` names stands in the list: "file:line: "."""
    for number, path in enumerate(listed.paths, 1):
        if path in message:
            return f"{listed.file}:{number}: "
    return f"{listed.file}: "


def _unreadable(path: Path) -> str | None:
    try:
        with Image.open(path):
            return None
    except UnidentifiedImageError:
        return "is empty" if path.stat().st_size == 0 else "is not an image"
    except OSError as error:
        return f"can't be read: {error.strerror or error}"


def whole_steps(config: Config, samples: int, where: Path) -> int:
    """How many steps of all ranks `samples` are enough for. Raises InputError if for none."""
    assert config.batch_size is not None
    steps = samples // (config.ranks * config.batch_size)
    if not steps:
        raise InputError(
            f"{where}: {samples} {MODELS[config.model].sample}s, and one step of "
            f"{config.ranks} x {config.batch_size} needs more"
        )
    return steps


def raise_if_any(problems: list[str]) -> None:
    """Raise InputError with the first SHOWN of the problems, if there are any."""
    if problems:
        more = len(problems) - SHOWN
        shown = problems[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise InputError("\n".join(shown))
