"""A trainer whose network is a function: its parameters and gradients, by name; what XLA
compiled for it, and what its profiler recorded."""

import re
import tempfile
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.config import Config
from perfkit.frameworks import base
from perfkit.frameworks.base import PARTS
from perfkit.frameworks.functional.layers import Forward
from perfkit.frameworks.functional.networks import VGG16, Bert, Gpt, ResNet50

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's names of dtypes, and ours."""
UPDATE = "perfkit optimizer step"
"""The optimizer's events in the profiler."""


def factor_dtypes(hlo: str) -> dict[str, int]:
    """dtype -> how many matrix products and convolutions in XLA's text have such factors."""
    dtypes: dict[str, str] = dict(re.findall(r"%(\S+) = (\w+)\[", hlo))
    factors = re.findall(r" (?:dot|convolution)\(%([^\s,)]+)", hlo)
    seen = (dtypes[name] for name in factors)
    return dict(Counter(NAMES.get(dtype, dtype) for dtype in seen))


def profile(
    step: Callable[[], None],
    steps: int,
    record: Callable[[str], AbstractContextManager[Any]],
    update_seconds: Callable[[Path], float],
) -> dict[str, float | None]:
    """See Backend. `record(folder)` has the profiler write into a folder; `update_seconds` is
    how long the events UPDATE of its file took. Forward and backward pass are one program, the
    parts of which are mixed."""
    with tempfile.TemporaryDirectory() as folder:
        with record(folder):
            began = time.perf_counter()
            for _ in range(steps):
                step()
            seconds = time.perf_counter() - began
        (file,) = Path(folder).rglob("*.xplane.pb")
        known = {"step": seconds / steps, "optimizer": update_seconds(file) / steps}
    return dict.fromkeys(PARTS) | known | {"communication": 0.0}


NETWORKS: dict[str, Any] = {"resnet50": ResNet50, "vgg16": VGG16, "bert": Bert, "gpt": Gpt}

EPSILON = 1e-8
"""Of Adam."""
SLOTS = {"momentum": 1, "adamw": 2}
"""How many values an optimizer keeps for each of a parameter."""

Values = dict[str, Any]


def largest_of_ranks(value: int) -> int:
    """Of the one process that these frameworks train in."""
    return value


class Trainer(base.Trainer):
    """`values` are the parameters and `statistics` those of batch norm, as `hold` returns them;
    `gathered` are the gradients that `backward` has added, None after an update."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.network = NETWORKS[config.model]()
        self.layout = str(config.layout)
        run, random = self.declare(), np.random.default_rng(config.seed)
        first = {name: fill(random, shape) for name, (shape, fill) in run.declared.items()}
        self.parameters = sum(array.size for array in first.values())
        self.values, self.statistics = (
            {name: self.hold(self.from_canonical(name, array)) for name, array in some.items()}
            for some in (first, run.declared_statistics)
        )
        self.gathered: Values | None = None

    def examples(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each of the network's inputs: tokens, or images, of any size."""
        example: tuple[tuple[int, ...], str] = (1, 16), "int32"
        if self.config.layout:
            sizes = {"N": 1, "C": 3, "H": 64, "W": 64}
            example = tuple(sizes[axis] for axis in self.config.layout), "float32"
        return [example] * self.network.inputs

    @abstractmethod
    def declare(self) -> Forward:
        """A forward pass that recorded what `network` declares."""

    @staticmethod
    @abstractmethod
    def hold(array: np.ndarray) -> Any:
        """A parameter, or a statistic, with these first values."""

    def zero_grad(self) -> None:
        self.gathered = None

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return iter(self.values.items())

    def named_gradients(self) -> Iterator[tuple[str, Any]]:
        return iter((self.gathered or {}).items())

    def to_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array

    def from_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
