"""The precision and the device in which a program effectively computes."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
from jax import Array

from perfkit.training.effective import (
    check,
    check_tf32,
    dtype_name,
    effective_precision,
    rounds_to_tf32,
)
from perfkit.training.options import Options
from perfkit.training.xla import Product, factor_dtypes, products_in


def checked_precision(
    options: Options,
    compiled_text: str,
    weights: Mapping[str, Array],
    batch: tuple[Array, ...],
) -> dict[str, Any]:
    """Return the effective precision, the dtypes of matrix products and convolutions, and
    whether they round to TF32, from the compiled text of forward and backward pass: XLA
    multiplies bfloat16 in float32 where it has no other kernel. Raises ConfigMismatchError if
    they are not what was asked for, and PrecisionUnknownError."""
    products = products_in(compiled_text)
    dtypes = factor_dtypes(products)
    stored = {dtype_name(each.dtype) for each in weights.values() if each.ndim > 1}
    precision = effective_precision(dtypes, stored)
    arrays = [*weights.values(), *batch]
    device = "+".join(sorted({one.platform for each in arrays for one in each.devices()}))
    check(options, device, precision, dtypes)
    tf32 = device == "gpu" and rounds_factors(products)
    check_tf32(options, tf32)
    return {"precision": precision, "dtypes": dtypes, "tf32": tf32}


def rounds_factors(products: Iterable[Product]) -> bool:
    """Return whether this GPU rounds float32 factors to TF32: XLA allows it below the highest
    precision."""
    wide = [product for product in products if product.dtype == "float32"]
    allowed = not all(product.is_highest for product in wide)
    major, minor = jax.local_devices()[0].compute_capability.split(".")
    return rounds_to_tf32((int(major), int(minor)), allowed=allowed)
