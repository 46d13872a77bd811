"""Input by NVIDIA DALI, on a GPU or a CPU; labels are cast.

readers.file -> decoder and random crop, resized -> crop_mirror_normalize. With `dali_decoder`
image_random_crop, which the published suites have, the decoder crops and resize follows; with
image, random_resized_crop follows, which draws the same crops.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from perfkit.config import Config
from perfkit.inputs import InputError, raise_if_short
from perfkit.inputs.images import DEVIATION, MEAN, Images

PLUGINS = {"paddle": "paddle", "torch": "pytorch"}
"""DALI's own name of each framework that trains on GPUs."""


@pipeline_def
def _pipeline(config: Config, listed: Images, rank: int) -> Any:
    encoded, labels = fn.readers.file(
        file_root=str(listed.source.parent),
        file_list=str(listed.source),
        random_shuffle=True,
        shard_id=rank,
        num_shards=config.ranks,
        pad_last_batch=True,
        name="reader",
    )
    decoding: dict[str, Any] = {"device": "cpu", "output_type": types.RGB}
    if config.device == "gpu":
        decoding |= {
            "device": "mixed",
            "hw_decoder_load": config.dali_hw_decoder_load,
            "device_memory_padding": config.dali_device_padding,
            "host_memory_padding": config.dali_host_padding,
        }
    attempts, size = config.dali_crop_attempts, config.sample_size
    if config.dali_decoder == "image":
        images = fn.decoders.image(encoded, **decoding)
        images = fn.random_resized_crop(images, size=(size, size), num_attempts=attempts)
    else:
        images = fn.decoders.image_random_crop(encoded, num_attempts=attempts, **decoding)
        images = fn.resize(images, resize_x=size, resize_y=size)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout=str(config.layout).removeprefix("N"),
        mean=MEAN,
        std=DEVIATION,
        mirror=fn.random.coin_flip(),
    )
    labels = fn.cast(labels, dtype=types.INT64)
    return images, labels.gpu() if config.device == "gpu" else labels


def batches(config: Config, rank: int) -> Iterator[tuple[Any, Any]]:
    """Yield (images, labels) for ever: float32 of batch x layout, int64 of batch x 1.

    On a CPU they are DALI's own buffers, to be read by DLPack, valid until the next batch is
    asked for. On a GPU they are the framework's tensors, as DALI's plugin gives them: with the
    dynamic executor, which 1.51 has and 2.0 uses, DALI's memory, which is not used again while
    such a tensor lives, and before it copies into the framework's memory.

    Raises InputError for a wrong list, one that is too short for a batch of each rank, and for
    a file that can't be decoded, with its line in the list where DALI names the file.
    """
    listed = Images(config)
    raise_if_short(len(listed), config, str(listed.source))
    pipeline = _pipeline(
        config,
        listed,
        rank,
        batch_size=config.batch_size,
        num_threads=config.dali_threads,
        device_id=rank % config.devices if config.device == "gpu" else None,
        prefetch_queue_depth=config.dali_prefetch,
        seed=config.seed + rank,
    )
    try:
        if config.device == "gpu":
            plugin = import_module(f"nvidia.dali.plugin.{PLUGINS[config.framework]}")
            for (batch,) in plugin.DALIGenericIterator([pipeline], ["images", "labels"]):
                yield batch["images"], batch["labels"]
        pipeline.build()
        while True:
            images, labels = pipeline.run()
            yield images.as_tensor(), labels.as_tensor()
    except RuntimeError as error:
        raise InputError(listed.line_of(str(error)) + _reason(str(error))) from error


def _reason(message: str) -> str:
    """The sentence in DALI's message, which wraps it in pipeline and traceback."""
    found = re.search(
        r"encountered:\s+(.+?)\s*(?:Current pipeline|C\+\+ context|$)", message, re.S
    )
    return " ".join((found[1] if found else message).split())[:400]
