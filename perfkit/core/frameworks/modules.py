"""Shared code of frameworks whose networks have modules: Paddle and PyTorch. Imports no
framework."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from perfkit.core.frameworks import inspector, trainer
from perfkit.core.frameworks.networks import Block, Network, Outline
from perfkit.core.frameworks.trainer import Batch

Tensor = Any


class Layers:
    """The layers of a network (see functional.layers.Forward), each a module of the framework.
    A subclass is also a module of the framework, and has a class `container` for the modules
    below it, functions `new_block` and `new_tied_head` and a method `new_<kind>` for each kind
    of layer with parameters.

    `modules_of_block` has the layers of each block of the network by their names. A block whose
    layers share a prefix, such as `layers.3`, is itself a module of that name, in
    `block_modules`, which runs the block; the others are none, because it would change the
    names of their parameters.
    """

    container: Any
    new_block: Any
    new_tied_head: Any
    add_constant: Any
    average_to: Any
    drops = True
    """Whether dropout is enabled."""

    def create(self, network: Network) -> None:
        """Create the modules of a network in perfkit.core.frameworks.networks."""
        self.network = network
        self.inputs = network.inputs
        self.returns_loss = network.returns_loss
        self.label_index = network.label_index
        self.modules_by_name: dict[str, Any] = {}
        self.modules_of_block: dict[str, dict[str, Any]] = {}
        outline = Outline(network)
        self.block_modules = self._block_modules(outline)
        # In the order of the forward pass, the reverse of which parallel training assumes to be
        # that of the gradients.
        for block, layers in outline.blocks.items():
            modules = {}
            if block in self.block_modules:
                self._attach(block, self.block_modules[block])
            for name, (kind, sizes, options) in layers.items():
                create = getattr(self, f"new_{kind}")
                modules[name] = create(*sizes, **options)
                self._attach(name, modules[name])
            self.modules_of_block[block] = modules
            self.modules_by_name |= modules
            if block in self.block_modules:
                self.complete_block(self.block_modules[block])
        for name, embedding in outline.tied_heads.items():
            head = self.new_tied_head(self.table(embedding))
            self._attach(name, head)
            self.modules_by_name[name] = head
        for name, array in outline.constants.items():
            self.add_constant(name, array)

    def complete_block(self, block: Any) -> None:
        """Change the module of a block that has just got all its layers."""

    def recompute_blocks(self) -> None:
        """Have the backward pass compute the activations within blocks again."""
        for module in self.block_modules.values():
            module.recompute()

    def _block_modules(self, outline: Outline) -> dict[str, Any]:
        """Return the modules of the blocks by name, and have the network run them."""
        modules = {}
        blocks = []
        for block in self.network.blocks:
            if outline.shares_name(block.name):
                module = self.new_block(partial(block.forward, self))
                modules[block.name] = module
                blocks.append(Block(block.name, partial(run_module, module)))
            else:
                blocks.append(block)
        self.network.blocks = blocks
        return modules

    def _attach(self, name: str, module: Any) -> None:
        """Set a module as the attribute with this dotted name, in containers."""
        owner: Any = self
        *path, last = name.split(".")
        for part in path:
            if not hasattr(owner, part):
                setattr(owner, part, self.container())
            owner = getattr(owner, part)
        setattr(owner, last, module)

    def loss(self, logits: Any, *targets: Tensor) -> Tensor:
        return self.network.loss(self, logits, *targets)

    def spatial_mean(self, x: Tensor) -> Tensor:
        return self.average_to(x, 1).flatten(1)

    def convolution(self, name: str, x: Tensor, *_sizes: Any, **_options: Any) -> Tensor:
        return self.modules_by_name[name](x)

    batch_norm = dense = embed = layer_norm = rms_norm = convolution

    def head(self, name: str, x: Tensor, labels: Tensor | None, *_sizes: Any) -> Tensor:
        return self.modules_by_name[name](x, labels)

    tied_head = head

    def embedding(self, name: str, *_sizes: Any) -> Tensor:
        return self.table(name)

    def table(self, name: str) -> Tensor:
        return self.modules_by_name[name].weight

    def constant(self, name: str, _array: Any) -> Tensor:
        return getattr(self, name)

    def vector(self, name: str, _width: int) -> Tensor:
        return getattr(self, name)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def run_module(module: Any, _network: Layers, *state: Any) -> Any:
    """Run the module of a block in the place of the block."""
    return module(state)


class Trainer(trainer.Trainer):
    """`network` is the framework's module, `forward` the network as trained: compiled, or
    wrapped for several ranks."""

    network: Any
    forward: Any
    scaler: Any
    optimizer: Any
    parallel: bool

    @abstractmethod
    def auto_cast(self) -> AbstractContextManager[Any]:
        """Return the context of the configuration's precision."""

    def loss(self, forward: Any, batch: Batch) -> tuple[Tensor, Any]:
        """Return the mean loss of a batch, and the logits."""
        inputs = self.network.inputs
        logits = forward(*batch[:inputs])
        return self.network.loss(logits, *batch[inputs:]), logits

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Tensor:
        if not self.parallel or sync_gradients:
            return self._backward(batch)
        with self.forward.no_sync():
            return self._backward(batch)

    def _backward(self, batch: Batch) -> Tensor:
        with self.auto_cast():
            loss, _logits = self.loss(self.forward, batch)
        if self.accumulate > 1:
            loss = loss / self.accumulate
        self.scaler.scale(loss).backward()
        return loss.detach()


class Inspector(inspector.Inspector):
    no_grad: Any
    """Context of the framework in which no gradients are recorded."""

    def predict(self, batch: Batch) -> tuple[Tensor, Any]:
        trainer = self.trainer
        network = trainer.network
        with self.no_grad(), trainer.auto_cast():
            loss, outputs = trainer.loss(network, batch)
            if network.returns_loss:
                outputs = network(*batch[: network.label_index])
            return loss, outputs

    def run(self, batch: Batch) -> None:
        """Run a forward pass in evaluation mode, which changes neither gradients nor batch-norm
        statistics nor random numbers."""
        network = self.trainer.network
        network.eval()
        with self.no_grad(), self.trainer.auto_cast():
            network(*batch[: network.inputs])
        network.train()

    def disable_dropout(self) -> None:
        self.trainer.network.drops = False

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        scale = self.trainer.loss_scale or 1.0
        for name, parameter in self.named_parameters():
            if parameter.grad is not None:
                yield name, parameter.grad / scale

    @abstractmethod
    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """See inspector.Inspector."""
