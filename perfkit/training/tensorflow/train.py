"""Trains a built-in model in TensorFlow, on a CPU:

python -m perfkit.training.tensorflow.train --model resnet50 --batch-size 8 --device cpu

docs/backends.md explains the settings and the alternatives that were tried.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor, Variable

import perfkit
from perfkit.training.effective import host_settings, input_settings
from perfkit.training.models import training_flops
from perfkit.training.options import Options
from perfkit.training.tensorflow.batches import new_batches
from perfkit.training.tensorflow.models import Batch, loss_of, new_model
from perfkit.training.tensorflow.optimizers import AdamW, Momentum
from perfkit.training.tensorflow.precision import checked_precision

POLICIES = {"amp": "mixed_float16", "bf16": "mixed_bfloat16"}
INITIAL_LOSS_SCALE = 2.0**15


def main() -> None:
    options = Options.parse("tensorflow")
    open_device(options)
    is_compiled = options.execution == "static"
    is_scaled = options.precision == "amp"

    model = new_model(options)
    parameters = model.trainable_variables
    optimizer = new_optimizer(options, parameters)
    loss_scale = Variable(INITIAL_LOSS_SCALE if is_scaled else 1.0)

    @tf.function(jit_compile=is_compiled)
    def backward(batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Return a micro-batch's share of the loss, and its scaled gradients."""
        with tf.GradientTape() as tape:
            loss = loss_of(options, model, batch) / options.accumulate
            scaled = loss * loss_scale
        gradients = tape.gradient(scaled, parameters)
        # That of an embedding lookup is sparse.
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    @tf.function(jit_compile=is_compiled)
    def sums(gradients: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        return [one + other for one, other in zip(gradients, others, strict=True)]

    def accumulated(gradients: Any, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Return a micro-batch's share of the loss, and the sums of all gradients so far."""
        loss, computed = backward(batch)
        return loss, computed if gradients is None else sums(gradients, computed)

    @tf.function(jit_compile=is_compiled)
    def update(gradients: list[Tensor]) -> None:
        if is_scaled:
            gradients = [gradient / loss_scale for gradient in gradients]
        optimizer.apply(gradients)

    batches = new_batches(options)
    effective = checked_precision(options, model, backward, next(batches))

    timer = perfkit.StepTimer(
        samples_per_step=options.samples_per_step,
        unit=options.facts.unit.removesuffix("/s"),
        flops_per_sample=training_flops(options),
        parameters=sum(parameter.shape.num_elements() for parameter in parameters),
        precision=effective["precision"],
        exits=False,
    )
    execution = "tf.function, compiled by XLA" if is_compiled else "tf.function"
    timer.note(
        **effective,
        **host_settings(options),
        loss_scaling=INITIAL_LOSS_SCALE if is_scaled else None,
        settings={"execution": execution} | input_settings(options),
    )

    skipped = 0
    loss: Any = None
    gradients: Any = None
    for number, batch in enumerate(timer.batches(batches), 1):
        share, gradients = accumulated(gradients, batch)
        loss = share if loss is None else loss + share
        if number % options.accumulate:
            continue
        if is_scaled and not all_finite(gradients):
            skipped += 1
            loss_scale.assign(loss_scale / 2)
        else:
            update(gradients)
        timer.step(loss)
        loss = gradients = None
        if number == options.steps * options.accumulate:
            break

    if is_scaled:
        timer.note(loss_scale=float(loss_scale), skipped_steps=skipped)


def open_device(options: Options) -> None:
    """Leave the GPUs alone, seed TensorFlow, and choose the dtypes of new layers."""
    tf.config.set_visible_devices([], "GPU")
    tf.random.set_seed(options.seed)
    policy = POLICIES.get(options.precision, "float32")
    tf.keras.mixed_precision.set_global_policy(policy)


def new_optimizer(options: Options, parameters: Sequence[Variable]) -> Momentum | AdamW:
    if options.optimizer == "momentum":
        return Momentum(parameters, options.optimizer_settings)
    return AdamW(parameters, options.optimizer_settings)


@tf.function
def all_finite(gradients: Sequence[Tensor]) -> Tensor:
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in gradients])


if __name__ == "__main__":
    main()
