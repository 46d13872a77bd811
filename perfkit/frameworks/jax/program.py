"""What is read from a program of JAX: as it was traced, and as XLA compiled it."""

import re
from collections import Counter
from math import prod
from typing import Any

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's names of dtypes, and ours."""


def multiply_adds(jaxpr: Any) -> int:
    """Of convolutions and matrix products in a jaxpr and those within it."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            factor = equation.invars[0].aval.shape
            summed = prod(factor[axis] for axis in contracted)
            count += equation.outvars[0].aval.size * summed
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
            count += equation.outvars[0].aval.size * kernel.size // outputs
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            count += multiply_adds(inner) if hasattr(inner, "eqns") else 0
    return count


def factor_dtypes(hlo: str) -> dict[str, int]:
    """dtype -> how many matrix products and convolutions in XLA's text have such factors."""
    dtypes: dict[str, str] = dict(re.findall(r"%(\S+) = (\w+)\[", hlo))
    factors = re.findall(r" (?:dot|convolution)\(%([^\s,)]+)", hlo)
    seen = (dtypes[name] for name in factors)
    return dict(Counter(NAMES.get(dtype, dtype) for dtype in seen))
