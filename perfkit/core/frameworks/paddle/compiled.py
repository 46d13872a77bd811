"""Compiles a network: as a whole on one device, block by block on several.

Paddle's `to_static` makes a program of a function. It computes all gradients of a program
before it hands out the first (GradNodeRunProgram). The gradients of a network that is one
program are therefore exchanged when its backward pass has ended. If each block is a program,
the gradients of the last blocks are exchanged while those of the first are computed. One
program has less overhead and is therefore used where nothing is exchanged.
"""

from functools import partial
from typing import Any

import paddle
from paddle import nn

from perfkit.core.frameworks.networks import Block, State
from perfkit.core.frameworks.paddle.layers import Network


class BlockLayer(nn.Layer):
    """A block of a network as a layer that has the block's parameters, and no others: Paddle
    computes a gradient for every parameter of a compiled layer, if only zeros."""

    def __init__(self, block: Block, network: Network) -> None:
        super().__init__()
        for name, module in network.modules_of_block[block.name].items():
            setattr(self, name, module)
        self.compute = partial(block.forward, network)

    # Not converted, as Network.forward; to_static does not support *state.
    @paddle.jit.not_to_static
    def forward(self, state: State) -> Any:
        return self.compute(*state)


def compile_whole(network: Network, **options: Any) -> None:
    """Have a network run as one program. `options` are those of to_static."""
    paddle.jit.to_static(network, full_graph=True, **options)


def compile_blocks(network: Network, **options: Any) -> None:
    """Have each block of a network run as a program."""
    layers = nn.LayerList()
    blocks = []
    for block in network.network.blocks:
        layer = BlockLayer(block, network)
        paddle.jit.to_static(layer, full_graph=True, **options)
        layers.append(layer)
        blocks.append(Block(block.name, partial(_run, layer)))
    network.network.blocks = blocks
    network.blocks_are_compiled = True
    # As parts of the network they train whenever it does. Their parameters keep their names,
    # because the network had them before.
    network.compiled_blocks = layers


def _run(layer: BlockLayer, _network: Network, *state: Any) -> Any:
    return layer(state)
