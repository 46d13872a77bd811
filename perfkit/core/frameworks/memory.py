"""The memory that weights, gradients and optimizer states take on each device, from the shapes
of a network alone: no framework and no device is needed."""

from math import prod
from typing import NamedTuple

from perfkit.core.config import Config
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.networks import Outline, network_of

Shape = tuple[int, ...]
FLOAT32_BYTES, HALF_BYTES = 4, 2
STATES = {"momentum": 1, "adamw": 2, "lamb": 2}
"""Tensors that an optimizer keeps for each parameter, in float32."""


class DeviceMemory(NamedTuple):
    """Bytes on each device: of its weights, gradients and optimizer states, and of the other
    devices' weights that it gathers for a pass, at most. Activations, the logits, whole
    gradients until they are divided and the framework itself need memory besides."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int

    @property
    def total(self) -> int:
        return sum(self)


def device_memory(config: Config) -> DeviceMemory:
    """Return the memory of a configuration on the device with the largest share."""
    by_block = _shapes_by_block(config)
    share = sum(_share(config, shape) for shapes in by_block.values() for shape in shapes)
    stored_bytes, state_bytes = FLOAT32_BYTES, FLOAT32_BYTES * STATES[config.optimizer]
    if config.precision == "pure_fp16":
        # The optimizer also keeps the weights in float32.
        stored_bytes, state_bytes = HALF_BYTES, state_bytes + FLOAT32_BYTES
    return DeviceMemory(
        weights=share * stored_bytes,
        gradients=share * stored_bytes,
        optimizer=share * state_bytes,
        gathered=_gathered_bytes(config, by_block),
    )


def _shapes_by_block(config: Config) -> dict[str, list[Shape]]:
    """Return the shape of each parameter, by block."""
    by_block = {}
    for name, layers in Outline(network_of(config)).blocks.items():
        shapes: list[Shape] = []
        for layer_name, layer in layers.items():
            shapes += layer.parameters(layer_name).values()
        by_block[name] = shapes
    return by_block


def _share(config: Config, shape: Shape) -> int:
    """Return how many values of a parameter a device has."""
    if not config.is_sharded:
        return prod(shape)
    return FRAMEWORKS[config.framework].share(shape, config.ranks)


def _gathered_bytes(config: Config, by_block: dict[str, list[Shape]]) -> int:
    """Return the bytes of gathered weights: all, or with sharding=full those of two layers, of
    which one is gathered while the other computes, and those outside the layers."""
    if not config.is_sharded:
        return 0
    value_bytes = HALF_BYTES if config.precision == "bf16" else FLOAT32_BYTES
    values_by_block = [sum(map(prod, shapes)) for shapes in by_block.values()]
    embeddings, *layers, head = values_by_block
    gathered_layers = sum(layers)
    if config.sharding == "full":
        gathered_layers = 2 * max(layers)
    return value_bytes * (embeddings + gathered_layers + head)
