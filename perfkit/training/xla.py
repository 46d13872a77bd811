"""A reader of XLA's compiled text, for JAX and TensorFlow."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from perfkit.training.effective import PrecisionUnknownError

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's dtype name -> NumPy's."""
RESULT = re.compile(r"%(\S{1,200}) = (\w{1,20})\[")
PRODUCT = re.compile(r" (dot|convolution|custom-call)\(%([^\s,)]{1,200})")
LIBRARIES = ('custom_call_target="__cublas$', 'custom_call_target="__cudnn$conv')
"""How calls of NVIDIA's libraries are marked, which replace products on a GPU."""
HIGHEST = re.compile(r'operand_precision(=\{highest,highest\}|":\["HIGHEST","HIGHEST"\])')


class Product(NamedTuple):
    """A matrix product or convolution: the dtype of its factors, and whether XLA was asked for
    the highest precision, without which it may round them to TF32 on a GPU."""

    dtype: str
    is_highest: bool


def products_in(hlo: str) -> tuple[Product, ...]:
    """Return the matrix products and convolutions in HLO text. Raises PrecisionUnknownError if
    the dtype of a product's first factor is not in the text."""
    dtype_of: dict[str, str] = dict(RESULT.findall(hlo))
    products = []
    for line in hlo.splitlines():
        match = PRODUCT.search(line)
        if match is None:
            continue
        operation, factor = match.groups()
        if operation == "custom-call" and not any(mark in line for mark in LIBRARIES):
            continue
        dtype = dtype_of.get(factor)
        if dtype is None:
            raise PrecisionUnknownError(
                f"XLA's compiled text has no dtype of %{factor}, the first factor of a "
                f"{operation}, so the precision of the training is unknown: perfkit does not "
                f"know all forms of this text; measure with another version of the framework"
            )
        is_highest = HIGHEST.search(line) is not None
        products.append(Product(NAMES.get(dtype, dtype), is_highest))
    return tuple(products)


def factor_dtypes(products: Iterable[Product]) -> dict[str, int]:
    """Return factor dtype -> number of products."""
    return dict(Counter(product.dtype for product in products))
