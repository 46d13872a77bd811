"""Trainer and inspector of a network that is a function of named parameters."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks import inspector, trainer
from perfkit.core.frameworks.functional.layers import initial_parameters, initial_statistics
from perfkit.core.frameworks.networks import network_of

EPSILON = 1e-8
"""Adam's epsilon."""
SLOTS = {"momentum": 1, "adamw": 2}
"""Number of state tensors that an optimizer keeps per parameter."""

Values = dict[str, Any]
"""Tensors of the framework by name."""


def largest_of_ranks(value: int) -> int:
    """Return `value`: these frameworks train in one process."""
    return value


def framework_axes(array: np.ndarray) -> np.ndarray:
    """Return a parameter of Weights with the axes of functional.layers."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


class Trainer(trainer.Trainer):
    """`values` holds the parameters and `statistics` those of batch norm, as `hold` returns
    them; `gathered` holds the accumulated gradients, None after an update."""

    from_canonical = staticmethod(framework_axes)
    """See inspector.Inspector."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.network = network_of(config)
        self.layout = str(config.layout)
        self.values = self._held(initial_parameters(self.network, config.seed))
        self.statistics = self._held(initial_statistics(self.network))
        self.gathered: Values | None = None

    def _held(self, arrays: Iterable[tuple[str, np.ndarray]]) -> Values:
        return {name: self.hold(self.from_canonical(array)) for name, array in arrays}

    def new_slots(self) -> dict[str, tuple[Any, ...]]:
        """Return the optimizer's state tensors of each parameter, which are 0."""
        count = SLOTS[self.optimizer_settings.optimizer]
        slots = {}
        for name, value in self.values.items():
            zeros = np.zeros(value.shape)
            slots[name] = tuple(self.hold(zeros) for _ in range(count))
        return slots

    @abstractmethod
    def hold(self, array: np.ndarray) -> Any:
        """Return a parameter or statistic of the framework with these values."""

    def zero_grad(self) -> None:
        self.gathered = None


class Inspector(inspector.Inspector):
    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        return self.trainer.values.items()

    def named_gradients(self) -> Iterable[tuple[str, Any]]:
        return (self.trainer.gathered or {}).items()

    def to_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array

    def from_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return self.trainer.from_canonical(array)
