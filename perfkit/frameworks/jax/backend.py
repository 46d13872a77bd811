"""The JAX backend: plain JAX on a CPU, in one process.

On a CPU, too, JAX returns before a computation is done, and the clock of CpuDevice would tell
how long handing it over took. So whatever is timed here waits for its own results. To turn
`jax_cpu_enable_async_dispatch` off is not enough: what is handed an array that is still being
copied, as a batch may be, returns at once all the same.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.config import Config
from perfkit.frameworks.base import CpuDevice, Device
from perfkit.frameworks.jax.bert import Bert
from perfkit.frameworks.jax.layers import Forward, first_values, held, product, told, wide_type
from perfkit.frameworks.jax.optimizers import RULES
from perfkit.frameworks.jax.program import factor_dtypes, multiply_adds
from perfkit.frameworks.jax.resnet50 import ResNet50
from perfkit.frameworks.jax.vgg16 import VGG16
from perfkit.frameworks.precision import effective_precision
from perfkit.models.recipes import recipe

# Acts only before the first computation.
jax.config.update("jax_platforms", "cpu")

DTYPES = {"bf16": jnp.bfloat16}
VARIABLES = ("NPROC", "XLA_FLAGS")
POOL = "tf_XLAEigen"
"""What XLA names the threads that share a computation."""
UPDATE = "perfkit optimizer step"
"""By which the profiler's events are told apart."""

Batch = tuple[Array, ...]
Values = dict[str, Array]


def open_device(_config: Config) -> Device:
    """The CPU; calls return when their work is done."""
    return CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    jax.config.update("jax_enable_x64", True)


class Trainer:
    """Model, loss and optimizer."""

    loss_scale = None
    skipped_steps = 0

    def __init__(self, config: Config) -> None:
        self.accumulate = config.accumulate
        self.network = build_model(config)
        self.dtype = DTYPES.get(config.precision, wide_type())
        self.layout = str(config.layout)
        self.chosen = recipe(config)
        self.recipe = self.chosen.words
        self.values = first_values(self.network.parameters(), config.seed)
        self.parameters = sum(value.size for value in self.values.values())
        self.statistics = first_values(self.network.statistics(), config.seed)
        count, self.rule = RULES[self.chosen.optimizer]
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
        return self.network.forward(run, *batch[: self.network.inputs]), run.statistics

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
            scores, after = self._forward(values, statistics, own, batch)
            loss = self.network.loss(scores, *batch[self.network.inputs :])
            return loss / self.accumulate, after

        (loss, after), gradients = jax.value_and_grad(share, has_aux=True)(values)
        if gathered is not None:
            gradients = jax.tree.map(jnp.add, gathered, gradients)
        return loss, after, gradients, following

    def _update(
        self, values: Values, gradients: Values, slots: dict[str, Any], steps: Any
    ) -> tuple[Values, dict[str, Any]]:
        updated = {
            name: self.rule(self.chosen, value, gradients[name], slots[name], steps)
            for name, value in values.items()
        }
        return (
            {name: value for name, (value, _) in updated.items()},
            {name: kept for name, (_, kept) in updated.items()},
        )

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Array:
        """Add a micro-batch's share to the gradients, and its share of the step's loss."""
        loss, self.statistics, self.gathered, self.key = jax.block_until_ready(
            self.backward_pass(self.values, self.statistics, self.gathered, self.key, batch)
        )
        return loss

    def update(self) -> None:
        """The optimizer's step on the gradients that have come together, which it uses up."""
        self.steps += 1
        with jax.profiler.TraceAnnotation(UPDATE):
            self.values, self.slots = jax.block_until_ready(
                self.optimizer_step(self.values, self.gathered, self.slots, self.steps)
            )
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.gathered = None

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Loss and accuracy on a batch, from one forward pass as training makes it."""
        targets = batch[self.network.inputs :]
        scores, _ = jax.jit(self._forward)(self.values, self.statistics, self.key, batch)
        loss = self.network.loss(scores, *targets)
        return float(loss), float(self.network.accuracy(scores, *targets))

    def weights(self) -> dict[str, np.ndarray]:
        return {name: told(value) for name, value in self.values.items()}

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError for other names or shapes than `weights` gives."""
        firsts = self.network.parameters()
        shapes = {name: first.shape for name, first in firsts.items()}
        others = {name: array.shape for name, array in weights.items()}
        if shapes != others:
            wrong = sorted(set(shapes.items()) ^ set(others.items()))
            raise ValueError(f"weights of another network: {wrong[:4]}")
        self.values = {name: held(weights[name]) for name in firsts}

    def gradients(self) -> dict[str, np.ndarray]:
        return {name: told(gradient) for name, gradient in (self.gathered or {}).items()}

    def disable_dropout(self) -> None:
        """Have no dropout from now on."""
        self.key = None

    def multiply_adds(self, batch: Batch) -> int:
        """Of the matrix products that JAX traces in one forward pass."""
        traced = jax.make_jaxpr(self._forward)(self.values, self.statistics, self.key, batch)
        return multiply_adds(traced.jaxpr)

    def multiplied_dtypes(self, batch: Batch) -> dict[str, int]:
        """dtype -> how many matrix products of forward and backward pass have factors of it, as
        XLA compiled them: asked for bfloat16, it multiplies in float32 what it has no other
        kernel for."""
        compiled = self.backward_pass.lower(
            self.values, self.statistics, self.gathered, self.key, batch
        ).compile()
        return factor_dtypes(compiled.as_text())


class Workloads:
    """Pieces of work of known size, for perfkit.worker.peak."""

    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, wide_type())

    def matmul(self, size: int) -> Any:
        one, other = (
            jax.random.normal(key, (size, size)).astype(self.dtype)
            for key in jax.random.split(jax.random.key(0))
        )
        multiply = jax.jit(lambda one, other: product("ij,jk->ik", one, other))
        return lambda: multiply(one, other).block_until_ready()

    def copy(self, size_bytes: int) -> Any:
        source = jnp.zeros(size_bytes, jnp.int8)
        # The copy's memory is that of the one before, which is given up for it.
        target = [jnp.ones(size_bytes, jnp.int8)]
        assign = jax.jit(lambda _target, source: source, donate_argnums=0, keep_unused=True)

        def call() -> None:
            target[0] = assign(target[0], source).block_until_ready()

        return call


def build_model(config: Config) -> Any:
    """The network: `inputs` says how many of a batch's tensors it takes; the rest go to its
    `loss` and `accuracy`, after what it returned."""
    return {"resnet50": ResNet50, "vgg16": VGG16, "bert": Bert}[config.model]()


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """Batches as arrays of JAX, over the same memory where that begins at a multiple of 64
    bytes; their integers have 32 bits."""
    for batch in batches:
        yield jax.block_until_ready(tuple(_as_tensor(array) for array in batch))


def _as_tensor(array: Any) -> Array:
    seen = np.from_dlpack(array)
    return jnp.asarray(seen.astype(np.int32) if seen.dtype == np.int64 else seen)


def effective(trainer: Trainer, batch: Batch) -> dict[str, Any]:
    """What the run really does, as results.Effective has it."""
    dtypes = trainer.multiplied_dtypes(batch)
    weights = {value.dtype.name for value in trainer.values.values()}
    names = (path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return {
        "precision": effective_precision(dtypes, weights),
        "dtypes": dtypes,
        "tf32": False,
        "loss_scaling": trainer.loss_scale,
        "device": jax.default_backend(),
        "threads": {POOL: sum(name == POOL for name in names)},
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "parameters": trainer.parameters,
        "optimizer_settings": trainer.recipe,
    }


def memory_bytes(_config: Config) -> int | None:
    """None: a CPU's is the process' own."""
    return None


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """Seconds of a `step` and of the optimizer in it, the mean of so many, by JAX's profiler.
    Forward and backward pass are one computation, whose parts XLA mixes."""
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
