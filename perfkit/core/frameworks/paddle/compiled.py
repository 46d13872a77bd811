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

from perfkit.core.frameworks.modules import run_module
from perfkit.core.frameworks.networks import Block
from perfkit.core.frameworks.paddle.layers import BlockLayer, Network


def compile_whole(network: Network, **options: Any) -> None:
    """Have a network run as one program. `options` are those of to_static."""
    paddle.jit.to_static(network, full_graph=True, **options)


def compile_blocks(network: Network, **options: Any) -> None:
    """Have each block of a network run as a program."""
    layers = nn.LayerList()
    blocks = []
    for block in network.network.blocks:
        layer = network.block_modules.get(block.name)
        if layer is None:
            layer = _layer_of(block, network)
            layers.append(layer)
        paddle.jit.to_static(layer, full_graph=True, **options)
        blocks.append(Block(block.name, partial(run_module, layer)))
    network.network.blocks = blocks
    network.blocks_are_compiled = True
    # As parts of the network they train whenever it does. Their parameters keep their names,
    # because the network had them before.
    network.compiled_blocks = layers


def _layer_of(block: Block, network: Network) -> BlockLayer:
    """Return a layer that runs a block and has the block's parameters, and no others: Paddle
    computes a gradient for every parameter of a compiled layer, if only zeros."""
    layer = BlockLayer(partial(block.forward, network))
    for name, module in network.modules_of_block[block.name].items():
        setattr(layer, name, module)
    return layer
