"""A trainer whose network is a function of named parameters; a reader of XLA's compiled
text."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks import base
from perfkit.core.frameworks.functional.layers import initial_values
from perfkit.core.frameworks.networks import NETWORKS

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's dtype name -> NumPy's."""


def factor_dtypes(hlo: str) -> dict[str, int]:
    """Return factor dtype -> number of matrix products and convolutions in HLO text."""
    dtypes: dict[str, str] = dict(re.findall(r"%(\S+) = (\w+)\[", hlo))
    factors = re.findall(r" (?:dot|convolution)\(%([^\s,)]+)", hlo)
    return dict(Counter(NAMES.get(dtypes[name], dtypes[name]) for name in factors))


EPSILON = 1e-8
"""Adam's epsilon."""
SLOTS = {"momentum": 1, "adamw": 2}
"""Number of state tensors that an optimizer keeps per parameter."""

Values = dict[str, Any]


def largest_of_ranks(value: int) -> int:
    """Return `value`: these frameworks train in one process."""
    return value


class Trainer(base.Trainer):
    """`values` holds the parameters and `statistics` those of batch norm, as `hold` returns
    them; `gathered` holds the accumulated gradients, None after an update."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.network = NETWORKS[config.model]()
        self.layout = str(config.layout)
        self.values, self.statistics = (
            {name: self.hold(self.from_canonical(name, a)) for name, a in arrays.items()}
            for arrays in initial_values(self.network, config.seed)
        )
        self.gathered: Values | None = None

    def new_slots(self) -> dict[str, tuple[Any, ...]]:
        """Return the optimizer's state tensors of each parameter, which are 0."""
        count = SLOTS[self.optimizer_settings.optimizer]
        return {
            name: tuple(self.hold(np.zeros(value.shape)) for _ in range(count))
            for name, value in self.values.items()
        }

    @staticmethod
    @abstractmethod
    def hold(array: np.ndarray) -> Any:
        """Return a parameter or statistic of the framework with these values."""

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
