"""Times the trainings of Hugging Face's Trainer. Only `callback.py` imports transformers, which
`time_trainer` does when it is called.

callback.py  the callback that ends the steps
"""

from typing import Any


def time_trainer(
    trainer: Any,
    *,
    unit: str = "samples",
    units_per_sample: int = 1,
    flops_per_unit: float | None = None,
) -> None:
    """Time the steps of `trainer.train()` with a StepTimer. `trainer` is a `Trainer` of Hugging
    Face's transformers, or of a subclass.

    Losses, the wait for data and evaluations within the training are recorded too. `unit` is
    what the throughput counts, a plural noun, and `units_per_sample` how many of them a sample
    has: sequences of 1,024 tokens are counted in tokens by `unit="tokens",
    units_per_sample=1024`. `flops_per_unit` counts forward and backward pass. Raises ValueError
    if the Trainer's arguments do not tell the samples of a step.
    """
    from perfkit.timing.huggingface.callback import TrainerTimer

    trainer.add_callback(TrainerTimer(trainer, unit, units_per_sample, flops_per_unit))
