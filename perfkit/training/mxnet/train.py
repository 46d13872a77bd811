"""Trains ResNet-50 in MXNet:

python -m perfkit.training.mxnet.train --model resnet50 --batch-size 8 --device cpu

docs/backends.md explains the settings.
"""

from typing import Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import HybridBlock
from mxnet.ndarray import NDArray

import perfkit
from perfkit.training import models
from perfkit.training.effective import host_settings, input_settings
from perfkit.training.models import MOMENTUM, training_flops
from perfkit.training.mxnet.batches import new_batches
from perfkit.training.mxnet.precision import checked_precision
from perfkit.training.mxnet.resnet import ResNet
from perfkit.training.options import Options

cross_entropies = gluon.loss.SoftmaxCrossEntropyLoss()


def main() -> None:
    options = Options.parse("mxnet")
    mx.random.seed(options.seed)
    model = new_model(options)
    trainer = new_trainer(options, model)

    batches = new_batches(options)
    images, _labels = next(batches)
    effective = checked_precision(options, model, images)

    timer = perfkit.StepTimer(
        samples_per_step=options.samples_per_step,
        unit=options.facts.unit.removesuffix("/s"),
        flops_per_sample=training_flops(options),
        parameters=sum(each.data().size for each in trainable(model)),
        precision=effective["precision"],
        exits=False,
    )
    timer.note(
        **effective,
        **host_settings(options),
        loss_scaling=None,
        settings={"execution": "hybridize, with static memory"} | input_settings(options),
    )

    loss: Any = None
    for number, batch in enumerate(timer.batches(batches), 1):
        with autograd.record():
            share = loss_of(model, batch) / options.accumulate
        share.backward()
        # Or updates would share the cores with the backward pass.
        mx.nd.waitall()
        loss = share if loss is None else loss + share
        if number % options.accumulate:
            continue
        trainer.step(1)
        if options.accumulate > 1:
            model.collect_params().zero_grad()
        # MXNet computes asynchronously, also on a CPU.
        mx.nd.waitall()
        timer.step(loss)
        loss = None
        if number == options.steps * options.accumulate:
            break


def new_model(options: Options) -> HybridBlock:
    model = ResNet(models.RESNET_STAGES)
    model.initialize()
    if options.accumulate > 1:
        model.collect_params().setattr("grad_req", "add")
    model.hybridize(static_alloc=True, static_shape=True)
    return model


def trainable(model: HybridBlock) -> list[gluon.Parameter]:
    """Return the parameters; the statistics of batch norms are none."""
    parameters = model.collect_params().values()
    return [parameter for parameter in parameters if parameter.grad_req != "null"]


def new_trainer(options: Options, model: HybridBlock) -> gluon.Trainer:
    settings = options.optimizer_settings
    sgd = {
        "learning_rate": settings.learning_rate,
        "momentum": MOMENTUM,
        "wd": settings.weight_decay,
    }
    return gluon.Trainer(model.collect_params(), "sgd", sgd)


def loss_of(model: HybridBlock, batch: tuple[NDArray, ...]) -> NDArray:
    """Return the mean loss of a batch."""
    images, labels = batch
    return cross_entropies(model(images), labels).mean()


if __name__ == "__main__":
    main()
