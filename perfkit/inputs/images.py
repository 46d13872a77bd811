"""Images: the list of training files, its checks, and decoding by file.

`train_list.txt` holds one `path label` per line, with paths relative to the data folder. This
is the layout of the published suites: their ImageNet folders work unchanged.
"""

import hashlib
import math
import os
import random
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

from perfkit.inputs import InputError, raise_if_any
from perfkit.training.models import CLASSES
from perfkit.training.options import Options

LIST = "train_list.txt"
HEADERS_READ = 10_000
MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
"""Mean and standard deviation of ImageNet (RGB, 0 to 255), as in published ResNet-50 suites."""
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""Errors of Pillow for damaged files."""
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10
"""Random crop: share of the image's area and ratio width / height (Szegedy et al., Going deeper
with convolutions, 2014); if no attempt fits, a center crop."""


class Images:
    """The listed files; image n is paths[n], labels[n], on line n + 1 of `source`. Raises
    InputError with the invalid lines of the list."""

    expected = f"train/ and {LIST}"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.source = options.data_folder / LIST
        self.paths: list[str] = []
        self.labels: list[int] = []
        try:
            content = self.source.read_bytes()
            lines = content.decode("utf-8").splitlines()
        except OSError as error:
            raise InputError(f"{self.source}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise InputError(f"{self.source}:{line}: not UTF-8 text") from error
        if not lines:
            raise InputError(f"{self.source}: is empty; expected one `path label` per line")
        self.sha256 = hashlib.sha256(content).hexdigest()
        problems = []
        for number, text in enumerate(lines, 1):
            path, _, label = text.rpartition(" ")
            is_label = label.isascii() and label.isdigit() and len(label) < 10
            if path.strip() and is_label and int(label) < CLASSES:
                self.paths.append(path)
                self.labels.append(int(label))
            else:
                problem = f"expected `path label`, label below {CLASSES}, found {text[:80]!r}"
                problems.append(f"{self.source}:{number}: {problem}")
        raise_if_any(problems)

    @staticmethod
    def find(folder: Path) -> list[Path]:
        """Return the list. Raises OSError if there is none."""
        (folder / LIST).stat()
        return [folder / LIST]

    @staticmethod
    def digest(folder: Path) -> str:
        """Return the sha256 of the list. Raises OSError."""
        return hashlib.sha256((folder / LIST).read_bytes()).hexdigest()

    @staticmethod
    def sample_bytes(size: int) -> int:
        """Return the bytes of a sample as a DataLoader transfers it."""
        return 3 * size**2 * 4

    def check(self) -> None:
        """Check that every listed file exists, and the image headers of the first HEADERS_READ
        files. Raises InputError.

        Folders are listed instead of testing files one by one: ImageNet has a thousand folders
        and 1.28 million files. Errors after the header appear when the file is decoded.
        """
        root, problems = self.source.parent, []

        @cache
        def names(folder: str) -> set[str]:
            try:
                return {entry.name for entry in os.scandir(root / folder)}
            except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: NUL
                return set()
            except OSError as error:
                raise InputError(f"{root / folder}: {error.strerror}") from error

        for number, path in enumerate(self.paths, 1):
            folder, name = os.path.split(path)
            if name not in names(folder):
                problems.append(f"{self.source}:{number}: no such file: {path}")
            elif number <= HEADERS_READ:
                try:
                    Image.open(root / path).close()
                except UNREADABLE as error:
                    problems.append(f"{self.source}:{number}: {path}: {error}")
        raise_if_any(problems)

    def line_of(self, message: str) -> str:
        """Return the position in the list, "file:line: ", of the file that `message` names."""
        # The longest path that is named: another one may be a part of it.
        longest, line = "", 0
        for number, path in enumerate(self.paths, 1):
            if len(path) > len(longest) and path in message:
                longest, line = path, number
        return f"{self.source}:{line}: " if line else f"{self.source}: "

    def batches(self, rank: int, steps: int) -> Iterator[list[int]]:
        """Yield the indices of this rank's batches, endlessly; each epoch of `steps` steps is
        shuffled anew. Within an epoch, ranks have disjoint images, and images beyond the last
        full step are left out."""
        shape = steps, self.options.ranks, self.options.batch_size
        for epoch in count():
            random = np.random.default_rng((self.options.seed, epoch))
            order = random.permutation(len(self))
            steps_of_ranks = order[: math.prod(shape)].reshape(shape)
            for batches_of_ranks in steps_of_ranks:
                yield batches_of_ranks[rank].tolist()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an image, randomly cropped, resized, mirrored and normalized, and its label.
        Raises InputError."""
        path, size = self.paths[index], self.options.sample_size
        try:
            with Image.open(self.source.parent / path) as file:
                image = file.convert("RGB")
        except UNREADABLE as error:
            raise InputError(f"{self.source}:{index + 1}: {path}: {error}") from error
        box = random_box(*image.size)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        mean, deviation = np.array([MEAN, DEVIATION], np.float32)
        pixels = (np.asarray(image, np.float32) - mean) / deviation
        if self.options.layout == "NCHW":
            pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return pixels, np.array([self.labels[index]], np.int64)


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Return left, upper, right and lower edge of a random crop of an image of this size."""
    narrowest, widest = CROP_ASPECT
    for _ in range(CROP_ATTEMPTS):
        area = width * height * random.uniform(*CROP_AREA)
        aspect = math.exp(random.uniform(math.log(narrowest), math.log(widest)))
        columns = round(math.sqrt(area * aspect))
        rows = round(math.sqrt(area / aspect))
        if 0 < columns <= width and 0 < rows <= height:
            left = random.randint(0, width - columns)
            upper = random.randint(0, height - rows)
            return left, upper, left + columns, upper + rows
    columns = min(width, round(height * widest))
    rows = min(height, round(width / narrowest))
    left, upper = (width - columns) // 2, (height - rows) // 2
    return left, upper, left + columns, upper + rows
