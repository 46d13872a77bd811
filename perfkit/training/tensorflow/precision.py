"""The precision and the device in which a model effectively trains."""

from collections import Counter
from typing import Any

import tensorflow as tf

from perfkit.training.effective import check, check_tf32, effective_precision
from perfkit.training.options import Options
from perfkit.training.tensorflow.models import Batch
from perfkit.training.xla import factor_dtypes, products_in

PRODUCTS = ("Conv2D", "MatMul", "BatchMatMulV2")
"""TensorFlow's matrix-product operators in a forward pass; those of a backward pass start with
the same names."""


def checked_precision(
    options: Options, model: tf.Module, backward: Any, batch: Batch
) -> dict[str, Any]:
    """Return the effective precision, the dtypes in which the products of `backward`, forward
    and backward pass, compute, and that a CPU has no TF32. Raises ConfigMismatchError if they
    are not what was asked for, and PrecisionUnknownError."""
    dtypes = product_dtypes(options, backward, batch)
    parameters = model.trainable_variables
    weights = {each.dtype.name for each in parameters if each.shape.rank > 1}
    precision = effective_precision(dtypes, weights)
    devices = [tf.DeviceSpec.from_string(each.device) for each in (*parameters, *batch)]
    device = "+".join(sorted({each.device_type.lower() for each in devices}))
    check(options, device, precision, dtypes)
    check_tf32(options, tf32=False)
    return {"precision": precision, "dtypes": dtypes, "tf32": False}


def product_dtypes(options: Options, backward: Any, batch: Batch) -> dict[str, int]:
    """Return dtype -> number of products with such factors: in the graph or, since XLA may
    change them, in the compiled program."""
    if options.execution == "static":
        compiled = backward.experimental_get_compiler_ir(batch)
        return factor_dtypes(products_in(compiled(stage="optimized_hlo")))
    operators = backward.get_concrete_function(batch).graph.get_operations()
    products = [each for each in operators if each.type.startswith(PRODUCTS)]
    return dict(Counter(each.get_attr("T").name for each in products))
