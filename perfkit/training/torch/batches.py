"""Batches as PyTorch's tensors on the training device; see perfkit.inputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from perfkit.inputs import Batches, dataloader, synthetic
from perfkit.training.options import Options


def new_batches(options: Options, device: torch.device) -> Batches:
    """Return the input that the options name."""

    def on_device(array: Any) -> Tensor:
        """Return an array as a tensor, which on a CPU shares the input's memory. Images of the
        layout NHWC become NCHW with channels last in memory, as PyTorch wants them."""
        tensor = array if isinstance(array, Tensor) else torch.from_dlpack(array)
        if tensor.device != device:
            tensor = tensor.pin_memory().to(device, non_blocking=True)
        is_nhwc = tensor.ndim == 4 and options.layout == "NHWC"
        return tensor.permute(0, 3, 1, 2) if is_nhwc else tensor

    match options.input:
        case "dali":
            from perfkit.inputs import dali

            batches = dali.batches(options, options.rank, "nvidia.dali.plugin.pytorch")
            return Batches(batches, on_device, 1, options.dali_prefetch)
        case "dataloader":
            batches = dataloader.batches(options, options.rank, loaded)
            return Batches(batches, on_device, options.dataloader_workers)
    return Batches(synthetic.batches(options, options.rank), on_device)


def loaded(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches from PyTorch's DataLoader with this many processes."""
    loader = DataLoader(
        samples,
        batch_sampler=indices,
        num_workers=processes,
        pin_memory=torch.cuda.is_initialized(),
    )
    return map(tuple, loader)
