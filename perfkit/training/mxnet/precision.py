"""The precision and the device in which a model effectively trains."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import mxnet as mx
from mxnet.gluon import HybridBlock
from mxnet.ndarray import NDArray

from perfkit.training.effective import check, check_tf32, dtype_name, effective_precision
from perfkit.training.options import Options

OPERATORS = ("Convolution", "FullyConnected")
"""MXNet's matrix-product operators."""


class Product(NamedTuple):
    """A matrix-product operator of a graph, by the names of its output and its weight."""

    output: str
    weight: str


def graph_of(model: HybridBlock) -> Any:
    """Return the graph of a model, of the variable `images`, with the outputs of all
    operators."""
    return model(mx.sym.var("images")).get_internals()


def products_in(graph: Any) -> Iterator[Product]:
    nodes = json.loads(graph.tojson())["nodes"]
    for node in nodes:
        if node["op"] in OPERATORS:
            _input, (weight, *_version), *_bias = node["inputs"]
            yield Product(f"{node['name']}_output", nodes[weight]["name"])


def checked_precision(options: Options, model: HybridBlock, images: NDArray) -> dict[str, Any]:
    """Return the effective precision, the dtypes of the products, as MXNet infers them, and
    that a CPU has no TF32. Raises ConfigMismatchError if they are not what was asked for."""
    graph = graph_of(model)
    _inputs, outputs, _statistics = graph.infer_type(images=images.dtype)
    dtype_of = dict(zip(graph.list_outputs(), outputs, strict=True))
    dtypes = Counter(dtype_name(dtype_of[each.output]) for each in products_in(graph))
    parameters = [each.data() for each in model.collect_params().values()]
    weights = {dtype_name(each.dtype) for each in parameters if each.ndim > 1}
    precision = effective_precision(dtypes, weights)
    device = "+".join(sorted({each.context.device_type for each in (*parameters, images)}))
    check(options, device, precision, dtypes)
    check_tf32(options, tf32=False)
    return {"precision": precision, "dtypes": dict(dtypes), "tf32": False}
