"""Shared code of frameworks whose networks have modules: Paddle and PyTorch. Imports no
framework."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from perfkit.core.frameworks import base
from perfkit.core.frameworks.base import Batch
from perfkit.core.frameworks.networks import Outline

Tensor = Any


class Layers:
    """The layers of a network (see functional.layers.Forward), each a module of the framework.
    A subclass is also a module of the framework, and has a class `container` for the modules
    below it and a method `new_<kind>` for each kind of layer with parameters."""

    container: Any
    average_to: Any
    drops = True
    """Whether dropout is enabled."""

    def create(self, network: Any) -> None:
        """Create the modules of a network in perfkit.core.frameworks.networks."""
        self.network, self.inputs = network, network.inputs
        self.modules_by_name: dict[str, Any] = {}
        for name, (kind, sizes, options) in Outline(network).layers.items():
            module = getattr(self, f"new_{kind}")(*sizes, **options)
            owner, (*path, last) = self, name.split(".")
            for part in path:
                if not hasattr(owner, part):
                    setattr(owner, part, self.container())
                owner = getattr(owner, part)
            setattr(owner, last, module)
            self.modules_by_name[name] = module

    def loss(self, logits: Any, *targets: Tensor) -> Tensor:
        return self.network.loss(self, logits, *targets)

    def spatial_mean(self, x: Tensor) -> Tensor:
        return self.average_to(x, 1).flatten(1)

    def convolution(self, name: str, x: Tensor, *_sizes: Any, **_options: Any) -> Tensor:
        return self.modules_by_name[name](x)

    batch_norm = dense = layer_norm = convolution

    def embedding(self, name: str, *_sizes: Any) -> Tensor:
        return self.modules_by_name[name].weight

    def vector(self, name: str, _width: int) -> Tensor:
        return getattr(self, name)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Trainer(base.Trainer):
    """`forward` is the network as trained: compiled, or wrapped for several ranks."""

    forward: Any
    scaler: Any
    optimizer: Any
    parallel: bool
    no_grad: Any

    @abstractmethod
    def auto_cast(self) -> AbstractContextManager[Any]:
        """Return the context of the configuration's precision."""

    def _loss(self, forward: Any, batch: Batch) -> tuple[Tensor, Any]:
        logits = forward(*batch[: self.network.inputs])
        return self.network.loss(logits, *batch[self.network.inputs :]), logits

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Tensor:
        with self.forward.no_sync() if self.parallel and not sync_gradients else nullcontext():
            with self.auto_cast():
                loss, _logits = self._loss(self.forward, batch)
            loss = loss / self.accumulate if self.accumulate > 1 else loss
            self.scaler.scale(loss).backward()
        return loss.detach()

    def predict(self, batch: Batch) -> tuple[Tensor, Any]:
        with self.no_grad(), self.auto_cast():
            return self._loss(self.network, batch)

    def run(self, batch: Batch) -> None:
        """Run a forward pass in evaluation mode, which changes neither gradients nor batch-norm
        statistics nor random numbers."""
        self.network.eval()
        with self.no_grad(), self.auto_cast():
            self.network(*batch[: self.network.inputs])
        self.network.train()

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        scale = self.loss_scale or 1.0
        for name, parameter in self.named_parameters():
            if parameter.grad is not None:
                yield name, parameter.grad / scale

    def disable_dropout(self) -> None:
        self.network.drops = False
