"""Input by NVIDIA DALI, on a GPU or a CPU.

With `dali_decoder=image_random_crop`, as in the published suites, the decoder crops and
`resize` follows; with `image`, `random_resized_crop` draws the same crops.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from perfkit.inputs import InputError, raise_if_short
from perfkit.inputs.images import DEVIATION, MEAN, Images
from perfkit.training.options import Options


@pipeline_def
def _pipeline(options: Options, data: Images, rank: int) -> Any:
    encoded, labels = fn.readers.file(
        file_root=str(data.source.parent),
        file_list=str(data.source),
        random_shuffle=True,
        shard_id=rank,
        num_shards=options.ranks,
        pad_last_batch=True,
        name="reader",
    )
    images = fn.crop_mirror_normalize(
        _decoded_and_cropped(options, encoded),
        dtype=types.FLOAT,
        output_layout=str(options.layout).removeprefix("N"),
        mean=MEAN,
        std=DEVIATION,
        mirror=fn.random.coin_flip(),
    )
    labels = fn.cast(labels, dtype=types.INT64)
    if options.device == "gpu":
        labels = labels.gpu()
    return images, labels


def _decoded_and_cropped(options: Options, encoded: Any) -> Any:
    """Return the images, each with a random crop in the size that is trained on."""
    decoding: dict[str, Any] = {"device": "cpu", "output_type": types.RGB}
    if options.device == "gpu":
        decoding |= {
            "device": "mixed",
            "hw_decoder_load": options.dali_hw_decoder_load,
            "device_memory_padding": options.dali_device_padding,
            "host_memory_padding": options.dali_host_padding,
        }
    attempts, size = options.dali_crop_attempts, options.sample_size
    if options.dali_decoder == "image":
        images = fn.decoders.image(encoded, **decoding)
        return fn.random_resized_crop(images, size=(size, size), num_attempts=attempts)
    images = fn.decoders.image_random_crop(encoded, num_attempts=attempts, **decoding)
    return fn.resize(images, resize_x=size, resize_y=size)


def batches(options: Options, rank: int, plugin: str) -> Iterator[tuple[Any, Any]]:
    """Yield batches of images; see perfkit.inputs. `plugin` is DALI's module for the framework,
    used on a GPU.

    On a CPU, batches are DALI's buffers, read by DLPack and valid until the next batch. On a
    GPU, they are tensors of the framework from DALI's plugin: with the dynamic executor
    (available in 1.51, default in 2.0) in DALI's memory, which is not reused while a tensor
    refers to it; with the older executor copied to the framework's memory.

    Raises InputError if the list is invalid or too short for a batch of each rank, and if a
    file cannot be decoded (with its line in the list if DALI names the file).
    """
    data = Images(options)
    raise_if_short(len(data), options, str(data.source))
    pipeline = _pipeline(
        options,
        data,
        rank,
        batch_size=options.batch_size,
        num_threads=options.dali_threads,
        device_id=rank % options.devices if options.device == "gpu" else None,
        prefetch_queue_depth=options.dali_prefetch,
        seed=options.seed + rank,
    )
    try:
        if options.device == "gpu":
            yield from _gpu_batches(pipeline, plugin)
        else:
            yield from _cpu_batches(pipeline)
    except RuntimeError as error:
        message = str(error)
        raise InputError(data.line_of(message) + _reason(message)) from error


def _gpu_batches(pipeline: Any, plugin: str) -> Iterator[tuple[Any, Any]]:
    """Yield batches as tensors of the framework, from DALI's plugin for it."""
    iterator = import_module(plugin).DALIGenericIterator([pipeline], ["images", "labels"])
    for outputs in iterator:
        # JAX's iterator yields the batch, the others a list with one batch for each pipeline.
        batch = outputs if isinstance(outputs, dict) else outputs[0]
        yield batch["images"], batch["labels"]


def _cpu_batches(pipeline: Any) -> Iterator[tuple[Any, Any]]:
    """Yield batches as DALI's buffers."""
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield images.as_tensor(), labels.as_tensor()


def _reason(message: str) -> str:
    """Extract the reason from DALI's message, which adds the pipeline and a traceback."""
    pattern = r"encountered:\s+(.+?)\s*(?:Current pipeline|C\+\+ context|$)"
    match = re.search(pattern, message, re.S)
    reason = match[1] if match else message
    return " ".join(reason.split())[:400]
