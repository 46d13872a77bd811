"""Batches as Paddle's tensors on the training device; see perfkit.inputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle import Tensor

from perfkit.inputs import Batches, dataloader, synthetic
from perfkit.training.options import Options

core = paddle.base.core
DenseTensor = getattr(core, "DenseTensor", None) or core.LoDTensor
"""Tensor class that DALI's plugin fills: Paddle 3's name, or Paddle 2's."""


def new_batches(options: Options) -> Batches:
    """Return the input that the options name."""
    convert = as_tensor if options.device == "cpu" else on_device
    match options.input:
        case "dali":
            from perfkit.inputs import dali

            batches = dali.batches(options, options.rank, "nvidia.dali.plugin.paddle")
            return Batches(batches, convert, 1, options.dali_prefetch)
        case "dataloader":
            batches = dataloader.batches(options, options.rank, loaded)
            return Batches(batches, convert, options.dataloader_workers)
    return Batches(synthetic.batches(options, options.rank), convert)


def loaded(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches from Paddle's DataLoader with this many processes."""
    loader = paddle.io.DataLoader(samples, batch_sampler=indices, num_workers=processes)
    return map(tuple, loader)


def as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor on the same device, without a copy. Accepts tensors, the
    DenseTensors that DALI's Paddle plugin fills, and DLPack objects."""
    if isinstance(array, Tensor):
        return array
    if isinstance(array, DenseTensor):
        return paddle.to_tensor(array, place=array._place())
    # Paddle 2 accepts only a capsule, not a DLPack object.
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())


def on_device(array: Any) -> Tensor:
    """Copy an array to the device unless it is there: every operator would copy it and wait."""
    tensor = as_tensor(array)
    if not tensor.place.is_cpu_place():
        return tensor
    return tensor._copy_to(paddle.framework._current_expected_place_(), False)
