"""Reads a JAX trainer's results, work and effective settings."""

import re
from functools import partial
from math import prod
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental.multihost_utils import process_allgather

from perfkit.core.frameworks.effective import named_threads
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.xla import Product, factor_dtypes, products_in
from perfkit.core.frameworks.jax.parallel import REPLICATED, local
from perfkit.core.frameworks.trainer import Batch
from perfkit.training.effective import rounds_to_tf32

POOL = "tf_XLAEigen"
"""Name of XLA's worker threads."""
FUSED_ATTENTION = re.compile(r"__cudnn\$(fmha\w{0,40})")
"""cuDNN's attention in XLA's compiled text, such as `__cudnn$fmhaSoftmax`."""


class Inspector(functional.Inspector):
    variables = (
        "NPROC",
        "XLA_FLAGS",
        "NVIDIA_TF32_OVERRIDE",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
    )
    products: tuple[Product, ...] = ()
    fused_attention = ""
    """Names of the fused attention kernels in the program of the last `computed_dtypes`."""

    def predict(self, batch: Batch) -> tuple[Array, Any]:
        forward = jax.jit(self.trainer.forward)
        if self.trainer.shares:
            forward = self._on_shares
        outputs, loss, _statistics = forward(*self._state(), batch)
        network = self.trainer.network
        if network.returns_loss:
            without_labels = batch[: network.label_index]
            outputs, _loss, _statistics = forward(*self._state(), without_labels)
        return loss, outputs

    def _on_shares(self, *arguments: Any) -> Any:
        """Run the forward pass, for which every rank must gather the parameters."""
        trainer = self.trainer
        *state, batch = arguments
        specs = (trainer.specs, REPLICATED, REPLICATED)
        forward = trainer.program(trainer.forward, specs)
        return local(forward(*state, trainer.joined(batch)))

    def _state(self) -> tuple[Any, Any, Array | None]:
        """Return what a forward pass reads, on this rank alone; shares, on all ranks."""
        trainer = self.trainer
        if trainer.shares:
            return trainer.values, trainer.statistics, trainer.key
        return local((trainer.values, trainer.statistics, trainer.key))

    def assign(self, name: str, array: np.ndarray) -> None:
        self.trainer.values[name] = self.trainer.hold(array)

    def disable_dropout(self) -> None:
        self.trainer.key = None

    def multiply_adds(self, batch: Batch) -> int:
        # A fused kernel would hide products.
        forward = partial(self.trainer.forward, may_fuse=False)
        traced = jax.make_jaxpr(forward)(*self._state(), batch)
        return _multiply_adds(traced.jaxpr)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: factors of the compiled products of forward and backward
        pass. XLA multiplies bfloat16 in float32 where it has no other kernel."""
        trainer = self.trainer
        lowered = trainer.backward_pass.lower(
            trainer.values,
            trainer.statistics,
            trainer.gathered,
            trainer.key,
            trainer.joined(batch),
        )
        compiled = lowered.compile().as_text()
        self.products = products_in(compiled)
        self.fused_attention = ", ".join(sorted({*FUSED_ATTENTION.findall(compiled)}))
        return factor_dtypes(self.products)

    def attention(self, batch: Batch) -> str | None:
        return self.fused_attention or super().attention(batch)

    def array(self, tensor: Array) -> np.ndarray:
        if not tensor.is_fully_replicated:
            # All ranks must ask for it at the same time.
            tensor = process_allgather(tensor, tiled=True)
        return np.asarray(tensor)

    def place(self, tensor: Array) -> str:
        (platform,) = {device.platform for device in tensor.devices()}
        return platform

    def tf32(self) -> bool:
        """Return whether a GPU rounds factors to TF32, by the compiled products of the last
        `computed_dtypes`: XLA allows it below the highest precision."""
        if self.device != "gpu":
            return False
        wide = [product for product in self.products if product.dtype == "float32"]
        allowed = not all(product.is_highest for product in wide)
        major, minor = jax.local_devices()[0].compute_capability.split(".")
        return rounds_to_tf32((int(major), int(minor)), allowed=allowed)

    def settings(self) -> dict[str, str]:
        settings = {}
        if self.device == "gpu":
            settings["matmul_precision"] = str(jax.config.jax_default_matmul_precision)
            settings["peak_memory"] = "since the warm-up's start"
        if self.trainer.ranks:
            settings["gradient_exchange"] = "in the program of the backward pass"
        if self.trainer.shares:
            settings["sharding"] = self.trainer.shares.in_words(self.trainer.config)
        if self.trainer.config.recompute == "full":
            settings["recompute"] = "each layer, by jax.checkpoint"
        return settings

    def threads(self) -> dict[str, int]:
        return named_threads(POOL)


def _multiply_adds(jaxpr: Any) -> int:
    """Count the multiply-adds of products and convolutions in a jaxpr and its sub-jaxprs."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            factor = equation.invars[0].aval.shape
            summed = prod(factor[axis] for axis in contracted)
            count += equation.outvars[0].aval.size * summed
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            kernel_axes = equation.params["dimension_numbers"].rhs_spec
            outputs = kernel.shape[kernel_axes[0]]
            count += equation.outvars[0].aval.size * kernel.size // outputs
        # A loop over slices runs its body `length` times.
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                count += turns * _multiply_adds(inner)
    return count
