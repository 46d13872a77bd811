"""Reads a PyTorch trainer's weights, work and effective settings."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.core.frameworks import modules
from perfkit.core.frameworks.effective import dtype_name, rounds_to_tf32
from perfkit.core.frameworks.trainer import Batch


class CalledAttention(TorchDispatchMode):
    """Collects the names of the attention operators that are called within a block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, operator: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(operator.name())
        if "attention" in name:
            self.names.add(name.partition("::")[2])
        return operator(*args, **(kwargs or {}))


class Inspector(modules.Inspector):
    no_grad = staticmethod(torch.no_grad)
    variables = ("OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return self.trainer.network.named_parameters()

    def assign(self, name: str, array: np.ndarray) -> None:
        with torch.no_grad():
            parameter = self.trainer.network.get_parameter(name)
            parameter.copy_(torch.from_numpy(array.copy()))

    def array(self, tensor: Tensor) -> np.ndarray:
        if hasattr(tensor, "full_tensor"):
            # A share (torch.distributed.tensor.DTensor): all ranks must ask for it together.
            tensor = tensor.full_tensor()
        return tensor.numpy(force=True)

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """Transpose weights of dense layers, which PyTorch stores as outputs x inputs."""
        path, _, _parameter = name.rpartition(".")
        layer = self.trainer.network.get_submodule(path)
        return array.T if isinstance(layer, nn.Linear) else array

    from_canonical = to_canonical

    def multiply_adds(self, batch: Batch) -> int:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        # The counter does not support the CPU's fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.run(batch)
        return counter.get_total_flops() // 2

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: output dtypes of the layers in a separate forward pass."""
        counts: Counter[str] = Counter()

        def count(_layer: Any, _inputs: Any, output: Tensor) -> None:
            counts[dtype_name(output.dtype)] += 1

        hooks = []
        for layer in self.trainer.network.modules():
            is_leaf = not [*layer.children()]
            if is_leaf:
                hooks.append(layer.register_forward_hook(count))
        self.run(batch)
        for hook in hooks:
            hook.remove()
        return dict(counts)

    def attention(self, batch: Batch) -> str | None:
        """See inspector.Inspector: the operators called by scaled_dot_product_attention in a
        separate forward pass; none are called if it decomposes into matrix products."""
        with CalledAttention() as called:
            self.run(batch)
        return ", ".join(sorted(called.names)) or super().attention(batch)

    def run(self, batch: Batch) -> None:
        with self._eager():
            super().run(batch)

    def predict(self, batch: Batch) -> tuple[Tensor, Any]:
        with self._eager():
            return super().predict(batch)

    def _eager(self) -> AbstractContextManager[Any]:
        """Return a context in which no layer is compiled: compiled layers run without what
        reads their work. Only those of a sharded network are compiled within it."""
        config = self.trainer.config
        if config.is_sharded and config.execution == "static":
            return torch.compiler.set_stance("force_eager")
        return nullcontext()

    def place(self, tensor: Tensor) -> str:
        return "gpu" if tensor.is_cuda else "cpu"

    def tf32(self) -> bool:
        if self.device != "gpu":
            return False
        allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        return rounds_to_tf32(torch.cuda.get_device_capability(), allowed=allowed)

    def settings(self) -> dict[str, str]:
        trainer = self.trainer
        fused = trainer.optimizer.defaults["fused"]
        settings = {
            "optimizer": "fused" if fused else "PyTorch's default",
            "memory_format": self._memory_format(),
            "execution": self._execution(),
        }
        if trainer.config.is_sharded:
            settings["sharding"] = trainer.network.sharding_in_words()
        if trainer.config.recompute == "full":
            blocks = len(trainer.network.block_modules)
            settings["recompute"] = f"{blocks} layers, by torch.utils.checkpoint"
        if self.device == "gpu":
            settings["cudnn.benchmark"] = str(torch.backends.cudnn.benchmark)
        return settings

    def _execution(self) -> str:
        config = self.trainer.config
        if config.execution == "dynamic":
            execution = "eager"
        elif config.is_sharded:
            execution = "torch.compile of each layer"
        else:
            execution = "torch.compile"
        if self.trainer.parallel:
            execution += ", then DistributedDataParallel"
        return execution

    def _memory_format(self) -> str:
        weights = (p for p in self.trainer.network.parameters() if p.ndim > 1)
        first = next(weights)
        channels_last = first.ndim == 4 and first.is_contiguous(
            memory_format=torch.channels_last
        )
        return "channels_last" if channels_last else "contiguous"
