"""What reads a trainer besides its steps: its weights and gradients, which `perfkit verify`
exchanges between frameworks, and its effective settings, which are stored with the results."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from perfkit.core.frameworks.networks import loss_parts
from perfkit.core.frameworks.trainer import Batch
from perfkit.core.results.schema import Effective, Option
from perfkit.training.effective import dtype_name, effective_precision
from perfkit.training.models import model_of

Weights = dict[str, np.ndarray]
"""Arrays by name; names and axes are the same in all frameworks. ResNet and VGG have the names
of torchvision (`layer1.0.conv1.weight`), BERT similar names to Hugging Face's. A dense layer's
weight is inputs x outputs, a convolution's outputs x inputs x height x width."""


class Inspector(ABC):
    """Reads a `trainer` of the same framework. Only `load_weights`, `assign` and
    `disable_dropout` change the training."""

    variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables stored with the results."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    # The network's results and work.

    @abstractmethod
    def predict(self, batch: Batch) -> tuple[Any, Any]:
        """Return the loss of a batch and the network's output, from forward passes in training
        mode without gradients: the logits, or the most likely classes if the network returns
        its loss. Batch-norm statistics may change."""

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Return the loss and the accuracy (top-1) on a batch. Raises ValueError if no row of
        the batch has a label."""
        network = self.trainer.network
        loss, outputs = self.predict(batch)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        classes = first if network.returns_loss else first.argmax(-1)
        predicted = self.array(classes).ravel()
        labels = self.array(batch[network.label_index]).ravel()
        counted = labels != model_of(self.trainer.config).ignored_label
        if not counted.any():
            raise ValueError("no row of this batch has a label")
        correct = (predicted == labels)[counted]
        return float(loss), float(correct.mean())

    @abstractmethod
    def multiply_adds(self, batch: Batch) -> int:
        """Count the multiply-adds of the matrix products executed in one forward pass."""

    @abstractmethod
    def disable_dropout(self) -> None:
        """Disable dropout and leave the network in training mode."""

    # Weights and gradients.

    @abstractmethod
    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Return the trainable parameters by name, as tensors of the framework."""

    @abstractmethod
    def named_gradients(self) -> Iterable[tuple[str, Any]]:
        """Return the unscaled gradients by name, as tensors of the framework."""

    @abstractmethod
    def assign(self, name: str, array: np.ndarray) -> None:
        """Set a parameter to values with the framework's axes."""

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's values in host memory, without a copy where possible."""
        return np.asarray(tensor)

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return a parameter's values with the axes of Weights."""
        return array

    def from_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """The inverse of to_canonical."""
        return array

    def weights(self) -> Weights:
        """Return copies of the trainable parameters."""
        return self._copies(self.named_parameters())

    def gradients(self) -> Weights:
        """Return copies of the accumulated gradients."""
        return self._copies(self.named_gradients())

    def _copies(self, tensors: Iterable[tuple[str, Any]]) -> Weights:
        copies = {}
        for name, tensor in tensors:
            array = self.to_canonical(name, self.array(tensor))
            copies[name] = np.array(array, order="C")
        return copies

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the trainable parameters. Raises ValueError, before any change, if names or
        shapes differ."""
        expected = {name: array.shape for name, array in self.weights().items()}
        given = {name: array.shape for name, array in weights.items()}
        differing = sorted({name for name, _shape in expected.items() ^ given.items()})
        if differing:
            first, *others = differing
            message = f"{first}: expected {expected.get(first)}, found {given.get(first)}"
            if others:
                message += f", and {len(others)} more differ"
            raise ValueError(message)
        for name in expected:
            self.assign(name, self.from_canonical(name, weights[name]))

    # The effective training.

    @abstractmethod
    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """Return dtype -> number of matrix products and convolutions, or of layers, computed
        in it."""

    def place(self, tensor: Any) -> str:
        """Return the type of the tensor's device: `cpu`, `gpu`, or another."""
        return "cpu"

    def attention(self, batch: Batch) -> str | None:
        """Return the attention kernel; None for a network without attention."""
        return "unfused" if model_of(self.trainer.config).sample == "sequence" else None

    @property
    def device(self) -> str:
        """Type of the device that holds the weights."""
        places = {self.place(tensor) for _name, tensor in self.named_parameters()}
        return "+".join(sorted(places))

    def tf32(self) -> bool:
        """Return whether the factors of float32 products are rounded to TF32."""
        return False

    def threads(self) -> dict[str, int]:
        """Return thread pool -> number of threads."""
        from threadpoolctl import threadpool_info

        return {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()}

    def strategy_outcomes(self) -> dict[str, Option]:
        """Return option of the distributed strategy -> its outcome."""
        return {}

    def settings(self) -> dict[str, str]:
        """Return tuning setting -> its value as the framework reports it."""
        return {}

    @property
    def recomputes_logits(self) -> bool:
        """Whether the logits of a loss in parts are computed again in the backward pass."""
        return True

    def loss_settings(self, batch: Batch) -> dict[str, str]:
        """Return how a network that returns its loss computes it."""
        network = self.trainer.network
        if not network.returns_loss:
            return {}
        rows = math.prod(batch[network.label_index].shape)
        parts = len(loss_parts(rows))
        if parts == 1:
            return {"loss": "of all rows at once"}
        if self.recomputes_logits:
            logits = "computed again in the backward pass"
        else:
            logits = "kept for the backward pass"
        return {"loss": f"in {parts} parts of the rows, whose logits are {logits}"}

    def effective(self, batch: Batch) -> Effective:
        """Return the settings under which a batch effectively trains."""
        parameters = [tensor for _name, tensor in self.named_parameters()]
        dtypes = self.computed_dtypes(batch)
        weight_dtypes = {dtype_name(p.dtype) for p in parameters if len(p.shape) > 1}
        # Every layer that takes a batch from another device copies it and synchronizes.
        places = {self.device, *map(self.place, batch)}
        return Effective(
            precision=effective_precision(dtypes, weight_dtypes),
            dtypes=dtypes,
            tf32=self.tf32(),
            attention=self.attention(batch),
            loss_scaling=self.trainer.loss_scale,
            device="+".join(sorted(places)),
            threads=self.threads(),
            variables={name: os.environ.get(name) for name in self.variables},
            parameters=sum(math.prod(p.shape) for p in parameters),
            optimizer_settings=self.trainer.optimizer_settings.description,
            strategy=self.strategy_outcomes(),
            settings=self.settings() | self.loss_settings(batch),
        )
