"""The callback that times the steps of Hugging Face's Trainer."""

from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments
from transformers.trainer_pt_utils import get_model_param_count

from perfkit.timing.step_timer import StepTimer


class TrainerTimer(TrainerCallback):
    """Ends a step of a StepTimer when the Trainer has ended one. A callback sees no losses and
    no batches, so it also puts itself around the methods of the Trainer that do."""

    def __init__(
        self, trainer: Trainer, unit: str, units_per_sample: int, flops_per_unit: float | None
    ) -> None:
        self.timer = StepTimer(
            samples_per_step=samples_per_step(trainer) * units_per_sample,
            unit=unit,
            flops_per_sample=flops_per_unit,
            # Before the training, because FSDP would leave each rank a part of the weights.
            parameters=get_model_param_count(trainer.model, trainable_only=True),
            precision=precision_of(trainer),
        )
        self.trainer = trainer
        self.loss: Any = None
        self.get_train_dataloader = trainer.get_train_dataloader
        self.training_step = trainer.training_step
        self.evaluation_loop = trainer.evaluation_loop
        trainer.get_train_dataloader = self.timed_train_dataloader
        trainer.training_step = self.watched_training_step
        trainer.evaluation_loop = self.paused_evaluation_loop

    def timed_train_dataloader(self) -> Any:
        """Return the loader of the training, whose waits are recorded."""
        return self.timer.batches(self.get_train_dataloader())

    def watched_training_step(self, *arguments: Any, **options: Any) -> Any:
        """Do the forward and backward pass of a micro-batch, and add its share to the loss."""
        share = self.training_step(*arguments, **options)
        self.loss = share if self.loss is None else self.loss + share
        return share

    def paused_evaluation_loop(self, *arguments: Any, **options: Any) -> Any:
        """Evaluate; within a training, the time of an evaluation does not count."""
        if not self.trainer.is_in_train:
            return self.evaluation_loop(*arguments, **options)
        with self.timer.pause():
            return self.evaluation_loop(*arguments, **options)

    def on_step_end(
        self, args: Arguments, state: TrainerState, control: TrainerControl, **_others: Any
    ) -> None:
        """End a step: the optimizer has updated the weights."""
        loss, self.loss = self.loss, None
        self.timer.step(loss)


def samples_per_step(trainer: Trainer) -> int:
    """Return the samples that this rank trains in a step of the optimizer. Raises ValueError if
    ranks share a sample, as in tensor parallelism, or if the Trainer looks for a batch size."""
    arguments = trainer.args
    if arguments.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size changes the batch size while the Trainer runs; set "
            "per_device_train_batch_size to the size that it finds"
        )
    global_batch = trainer.get_total_train_batch_size(arguments)
    samples, rest = divmod(global_batch, arguments.world_size)
    if rest:
        raise ValueError(
            f"a step trains {global_batch} samples on {arguments.world_size} ranks; choose a "
            "batch size that gives each rank the same whole number of samples"
        )
    return samples


def precision_of(trainer: Trainer) -> str:
    """Return the number format of the Trainer's mixed precision, otherwise of its weights."""
    mixed_precision = trainer.accelerator.mixed_precision
    if mixed_precision != "no":
        return str(mixed_precision)
    weights = next(trainer.model.parameters())
    return str(weights.dtype).removeprefix("torch.")
