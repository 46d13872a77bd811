"""The arguments of the training scripts, which are the notebooks' parameters of the same
names: `--batch-size` is `batch_size`. Others follow from the model and the device."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from perfkit.timing.session import current_session
from perfkit.training.frameworks import FRAMEWORKS, default_layout
from perfkit.training.models import MODELS, Model, OptimizerSettings
from perfkit.training.models import model_of as facts_of
from perfkit.training.models import optimizer_settings as settings_of

PRECISIONS = ("fp32", "amp", "pure_fp16", "bf16", "auto")


def option(default: Any, meaning: str, *choices: str) -> Any:
    """Return a field of Options: its default, None for one that depends on model and device,
    its meaning and the values that it may have."""
    return field(default=default, metadata={"help": meaning, "choices": choices or None})


@dataclass(kw_only=True)
class Options:
    """What a script trains, and its place among the ranks. Lengths are pixels of an image's
    sides or tokens of a sequence."""

    framework: str
    model: str = option(MISSING, "model to train", *MODELS)
    model_size: str = option(None, "size of gpt (124M, 355M ...) or llama (tiny, 1b, 8b)")
    device: str = option("gpu", "cpu, gpu, or another type that Paddle has")
    precision: str = option("fp32", "number format", *PRECISIONS)
    tf32: bool = option(False, "allow a GPU to round fp32 factors to TF32")
    execution: str = option(None, "how the graph is executed", "dynamic", "static")
    strategy: str = option("none", "preset of distributed-training options (Paddle)")
    sharding: str = option("none", "what ranks divide (llama)", "none", "gradients", "full")
    recompute: str = option("none", "activations computed again (llama)", "none", "full")
    optimizer: str = option(None, "optimizer", "momentum", "adamw", "lamb")
    layout: str = option(None, "memory layout of images", "NCHW", "NHWC")
    batch_size: int = option(None, "samples of a rank in a micro-batch")
    accumulate: int = option(1, "micro-batches of a step")
    image_size: int = option(None, "pixels of an image's sides")
    sequence_length: int = option(None, "tokens of a sequence")
    seed: int = option(0, "random seed of weights, dropout and the order of samples")
    disable_tuning: str = option("", "GPU settings to leave alone, comma-separated; all")
    input: str = option("synthetic", "source", "dali", "dataloader", "synthetic")
    data_dir: str = option(None, "folder of the data set")
    dali_threads: int = option(4, "DALI's threads per device")
    dali_prefetch: int = option(2, "batches that DALI prepares")
    dali_decoder: str = option("image_random_crop", "DALI's decoder: image_random_crop, image")
    dali_hw_decoder_load: float = option(0.65, "share of the images for a GPU's decoder")
    dali_crop_attempts: int = option(100, "attempts to find a random crop")
    dali_device_padding: int = option(211_025_920, "nvJPEG's device memory, bytes")
    dali_host_padding: int = option(140_544_512, "nvJPEG's pinned memory, bytes")
    dataloader_workers: int = option(4, "processes of the framework's DataLoader")
    steps: int = option(None, "steps to train: 100, or until perfkit ends the training")
    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    devices: int = 1

    def __post_init__(self) -> None:
        on_cpu = self.device == "cpu"
        sizes = MODELS[self.model].sizes
        if sizes and self.model_size is None:
            self.model_size = sizes.on_cpu if on_cpu else sizes.on_gpu
        facts = self.facts
        defaults: dict[str, Any] = {
            "optimizer": facts.optimizers[0],
            "batch_size": facts.cpu_batch_size if on_cpu else facts.gpu_batch_size,
            "image_size": facts.default_image_size,
            "sequence_length": facts.default_sequence_length,
            "data_dir": facts.data_dir,
            "execution": FRAMEWORKS[self.framework].execution,
            "steps": sys.maxsize if current_session() else 100,
        }
        if on_cpu and facts.cpu_sequence_length:
            defaults["sequence_length"] = facts.cpu_sequence_length
        if facts.sample == "image":
            defaults["layout"] = default_layout(self.framework, self.device, self.precision)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    @classmethod
    def parse(
        cls,
        framework: str,
        words: Sequence[str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """Return the options of a command line, by default this process's, with the place that
        the framework's launcher tells."""
        facts = FRAMEWORKS[framework]
        parser = ArgumentParser(description=f"Trains a built-in model in {facts.display_name}.")
        for each in options():
            name = "--" + each.name.replace("_", "-")
            meaning = each.metadata["help"]
            if each.type is bool:
                parser.add_argument(name, action="store_true", help=meaning)
                continue
            parser.add_argument(
                name,
                type=each.type,
                default=None if each.default is MISSING else each.default,
                required=each.default is MISSING,
                choices=facts.supports.get(each.name, each.metadata["choices"]),
                help=meaning,
            )
        place = {
            name: int(environment.get(variable, default))
            for name, (variable, default) in facts.rank_variables.items()
        }
        given: dict[str, Any] = {**vars(parser.parse_args(words)), **place}
        chosen = cls(framework=framework, **given)
        if fault := chosen.fault():
            parser.error(fault)
        return chosen

    def fault(self) -> str:
        """Return which option is not for the model; empty if all are."""
        sizes, optimizers = self.facts.sizes, self.facts.optimizers
        if sizes and self.model_size not in sizes.names:
            return f"model_size={self.model_size}: {self.model} has {', '.join(sizes.names)}"
        if self.optimizer not in optimizers:
            return f"optimizer={self.optimizer}: {self.model} takes {', '.join(optimizers)}"
        if self.model != "llama" and {self.sharding, self.recompute} != {"none"}:
            return "sharding and recompute are for llama alone"
        return ""

    @property
    def facts(self) -> Model:
        return facts_of(self)

    @property
    def optimizer_settings(self) -> OptimizerSettings:
        return settings_of(self)

    @property
    def samples_per_step(self) -> int:
        """Samples of this rank in a step."""
        return self.batch_size * self.accumulate

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in a step."""
        return self.samples_per_step * self.ranks

    @property
    def sample_size(self) -> int:
        """Pixels of an image's sides, or tokens of a sequence."""
        return self.image_size or self.sequence_length

    @property
    def data_folder(self) -> Path:
        return Path(self.data_dir)

    @property
    def is_sharded(self) -> bool:
        return self.sharding != "none"

    def tunes(self, setting: str) -> bool:
        """Return whether `disable_tuning` leaves this GPU setting alone."""
        return not {setting, "all"} & {*self.disable_tuning.split(",")}


def options() -> list[Any]:
    """Return the fields of Options that are arguments."""
    return [each for each in fields(Options) if each.metadata]
