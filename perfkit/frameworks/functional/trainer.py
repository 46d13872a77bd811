"""A trainer whose network is a function: its parameters and gradients, by name."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from perfkit.config import Config
from perfkit.frameworks import base
from perfkit.frameworks.functional.bert import Bert
from perfkit.frameworks.functional.gpt import Gpt
from perfkit.frameworks.functional.layers import Forward
from perfkit.frameworks.functional.resnet50 import ResNet50
from perfkit.frameworks.functional.vgg16 import VGG16

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
