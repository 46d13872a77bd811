"""Traces a few steps of a built-in model in PyTorch, to compare it with other frameworks."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from perfkit.training.options import Options
from perfkit.training.torch.models import inputs_of, loss_of, new_model
from perfkit.training.torch.train import new_optimizer, open_device
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, raw_file, trace_steps


class TracedTraining:
    """See perfkit.training.trace.Traced."""

    def __init__(self, options: Options, device: torch.device, dtype: type) -> None:
        self.options = options
        batch = (torch.from_numpy(array) for array in fixed_batch(options, dtype))
        self.batch = tuple(tensor.to(device) for tensor in batch)
        self.model = new_model(options).to(device)
        if options.layout == "NHWC":
            self.model.to(memory_format=torch.channels_last)
            images, labels = self.batch
            # NCHW with channels last in memory.
            self.batch = images.permute(0, 3, 1, 2), labels
        disable_dropout(self.model)
        self.optimizer = new_optimizer(options, self.model)
        self.trained = self.model
        if options.execution == "static":
            self.trained = torch.compile(self.model, fullgraph=True, dynamic=False)

    def weights(self) -> Arrays:
        return {name: copied(parameter) for name, parameter in self.model.named_parameters()}

    @torch.no_grad()
    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))

    def backward(self) -> float:
        loss = loss_of(self.options, self.trained, self.batch)
        loss.backward()
        return float(loss.detach())

    def gradients(self) -> Arrays:
        gradients = {}
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None
            gradients[name] = copied(parameter.grad)
        return gradients

    def update(self) -> None:
        if clip_norm := self.options.optimizer_settings.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def multiply_adds(self) -> int:
        # The counter does not know the CPU's fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.model.eval()
            with torch.no_grad():
                self.model(*inputs_of(self.options, self.batch))
            self.model.train()
        return counter.get_total_flops() // 2


def disable_dropout(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(getattr(layer, "dropout", None), float):
            layer.dropout = 0.0
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0


def copied(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.numpy(force=True), order="C")


def write_trace(options: Options, folder: Path, write: Write) -> None:
    """Trace the training; `folder` is shared by all frameworks."""
    device = open_device(options)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            torch.set_default_dtype(torch.float64)
        trace_steps(TracedTraining(options, device, dtype), precision, folder, write)


if __name__ == "__main__":
    raw = raw_file()
    write_trace(Options.parse("torch"), raw.path.parent.parent, raw.write)
