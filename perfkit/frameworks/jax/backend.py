"""The JAX backend: plain JAX on a CPU, in one process.

On a CPU, too, JAX returns before a computation is done, and the clock of CpuDevice would show
how long handing it over took. So whatever is timed here waits for its own results. Turning
`jax_cpu_enable_async_dispatch` off is not enough: a call with an array that is still being
copied, as a batch may be, returns at once all the same.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.config import Config
from perfkit.frameworks import base
from perfkit.frameworks.base import CpuDevice, Device
from perfkit.frameworks.jax import layers
from perfkit.frameworks.jax.bert import Bert
from perfkit.frameworks.jax.layers import Forward, declarations, first_values, param_dtype
from perfkit.frameworks.jax.optimizers import RULES
from perfkit.frameworks.jax.program import factor_dtypes, multiply_adds
from perfkit.frameworks.jax.resnet50 import ResNet50
from perfkit.frameworks.jax.vgg16 import VGG16

# Acts only before the first computation.
jax.config.update("jax_platforms", "cpu")

DTYPES = {"bf16": jnp.bfloat16}
NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet50": ResNet50,
    "vgg16": VGG16,
    "bert": Bert,
}
POOL = "tf_XLAEigen"
"""What XLA names the threads that share a computation."""
UPDATE = "perfkit optimizer step"
"""The optimizer's events in the profiler."""

Batch = tuple[Array, ...]
Values = dict[str, Array]


def open_device(_config: Config) -> Device:
    """The CPU; calls return when their work is done."""
    return CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    jax.config.update("jax_enable_x64", True)


class Trainer(base.Trainer):
    """Model, loss and optimizer, in two compiled programs: `values` are the parameters,
    `gathered` the gradients, `slots` what the optimizer keeps for each parameter."""

    variables = ("NPROC", "XLA_FLAGS")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.network = NETWORKS[config.model]()
        self.dtype = DTYPES.get(config.precision, param_dtype())
        self.layout = str(config.layout)
        parameters, statistics = declarations(self.network, self.layout)
        self.values = first_values(parameters, config.seed)
        self.parameters = sum(value.size for value in self.values.values())
        self.statistics = first_values(statistics, config.seed)
        count, self.rule = RULES[self.optimizer_settings.optimizer]
        self.slots = {
            name: tuple(jnp.zeros_like(value) for _ in range(count))
            for name, value in self.values.items()
        }
        self.steps = 0
        self.key: Array | None = jax.random.key(config.seed)
        self.gathered: Values | None = None
        self.backward_pass = jax.jit(self._backward, donate_argnums=(1, 2, 3))
        self.optimizer_step = jax.jit(self._update, donate_argnums=(0, 2))

    def _forward(
        self, values: Values, statistics: Values, key: Array | None, batch: Batch
    ) -> tuple[Any, Values]:
        run = Forward(values, statistics, key, self.dtype, self.layout)
        return self.network(run, *batch[: self.network.inputs]), run.statistics

    def _backward(
        self,
        values: Values,
        statistics: Values,
        gathered: Values | None,
        key: Array | None,
        batch: Batch,
    ) -> tuple[Array, Values, Values, Array | None]:
        following, own = (None, None) if key is None else jax.random.split(key)

        def share(values: Values) -> tuple[Array, Values]:
            logits, after = self._forward(values, statistics, own, batch)
            loss = self.network.loss(logits, *batch[self.network.inputs :])
            return loss / self.accumulate, after

        (loss, after), gradients = jax.value_and_grad(share, has_aux=True)(values)
        if gathered is not None:
            gradients = jax.tree.map(jnp.add, gathered, gradients)
        return loss, after, gradients, following

    def _update(
        self, values: Values, gradients: Values, slots: dict[str, Any], steps: Any
    ) -> tuple[Values, dict[str, Any]]:
        updated = {
            name: self.rule(self.optimizer_settings, value, gradients[name], slots[name], steps)
            for name, value in values.items()
        }
        return (
            {name: value for name, (value, _) in updated.items()},
            {name: kept for name, (_, kept) in updated.items()},
        )

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Array:
        loss, self.statistics, self.gathered, self.key = jax.block_until_ready(
            self.backward_pass(self.values, self.statistics, self.gathered, self.key, batch)
        )
        return loss

    def update(self) -> None:
        self.steps += 1
        with jax.profiler.TraceAnnotation(UPDATE):
            self.values, self.slots = jax.block_until_ready(
                self.optimizer_step(self.values, self.gathered, self.slots, self.steps)
            )
        self.zero_grad()

    def zero_grad(self) -> None:
        self.gathered = None

    def predict(self, batch: Batch) -> tuple[Array, Any]:
        logits, _ = jax.jit(self._forward)(self.values, self.statistics, self.key, batch)
        return self.network.loss(logits, *batch[self.network.inputs :]), logits

    def named_parameters(self) -> Iterator[tuple[str, Array]]:
        return iter(self.values.items())

    def named_gradients(self) -> Iterator[tuple[str, Array]]:
        return iter((self.gathered or {}).items())

    def assign(self, name: str, array: np.ndarray) -> None:
        self.values[name] = jnp.array(array, param_dtype())

    def array(self, tensor: Array) -> np.ndarray:
        return np.asarray(tensor)

    def to_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return layers.to_canonical(array)

    def from_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return layers.from_canonical(array)

    def disable_dropout(self) -> None:
        self.key = None

    def multiply_adds(self, batch: Batch) -> int:
        traced = jax.make_jaxpr(self._forward)(self.values, self.statistics, self.key, batch)
        return multiply_adds(traced.jaxpr)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """By the factors of the matrix products of forward and backward pass, as XLA compiled
        them: asked for bfloat16, it multiplies in float32 what it has no other kernel for."""
        compiled = self.backward_pass.lower(
            self.values, self.statistics, self.gathered, self.key, batch
        ).compile()
        return factor_dtypes(compiled.as_text())

    @property
    def device(self) -> str:
        return jax.default_backend()

    def threads(self) -> dict[str, int]:
        names = (path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
        return {POOL: sum(name == POOL for name in names)}


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, param_dtype())

    def matmul(self, size: int) -> Any:
        a, b = (
            jax.random.normal(key, (size, size)).astype(self.dtype)
            for key in jax.random.split(jax.random.key(0))
        )
        multiply = jax.jit(lambda a, b: layers.product("ij,jk->ik", a, b))
        return lambda: multiply(a, b).block_until_ready()

    def copy(self, size_bytes: int) -> Any:
        source = jnp.zeros(size_bytes, jnp.int8)
        # The copy's memory is that of the one before, which is given up for it.
        target = [jnp.ones(size_bytes, jnp.int8)]
        assign = jax.jit(lambda _target, source: source, donate_argnums=0, keep_unused=True)

        def call() -> None:
            target[0] = assign(target[0], source).block_until_ready()

        return call


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """Batches as arrays of JAX, over the same memory where that begins at a multiple of 64
    bytes; their integers have 32 bits."""
    for batch in batches:
        yield jax.block_until_ready(tuple(_as_tensor(array) for array in batch))


def _as_tensor(array: Any) -> Array:
    view = np.from_dlpack(array)
    return jnp.asarray(view.astype(np.int32) if view.dtype == np.int64 else view)


def memory_bytes(_config: Config) -> int | None:
    return None


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """See Backend. Forward and backward pass are one computation, whose parts XLA mixes."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            began = time.perf_counter()
            for _ in range(steps):
                step()
            seconds = time.perf_counter() - began
        (file,) = Path(folder).rglob("*.xplane.pb")
        events = [
            event
            for plane in jax.profiler.ProfileData.from_file(str(file)).planes
            for line in plane.lines
            for event in line.events
        ]
    updating = sum(event.duration_ns for event in events if event.name == UPDATE) / 1e9
    return {
        "step": seconds / steps,
        "forward": None,
        "backward": None,
        "optimizer": updating / steps,
        "communication": 0.0,
    }
