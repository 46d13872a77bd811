"""What is true of a model whatever framework trains it. `<model>_<framework>.py` builds it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Model:
    """Facts, choices that fit, and defaults. Batch sizes are samples per device, image sizes
    pixels, sequence lengths tokens; None: its samples have none."""

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    inputs: tuple[str, ...]
    optimizers: tuple[str, ...]
    gpu_batch_size: int
    cpu_batch_size: int
    data_dir: str
    default_image_size: int | None = None
    default_sequence_length: int | None = None

    @property
    def unit(self) -> Literal["images/s", "sequences/s"]:
        return "images/s" if self.sample == "image" else "sequences/s"


MODELS = {
    "resnet50": Model(
        name="ResNet-50 v1.5",
        short_name="ResNet-50",
        parameters=25_557_032,
        sample="image",
        inputs=("dali", "dataloader", "synthetic"),
        optimizers=("momentum",),
        gpu_batch_size=128,
        cpu_batch_size=4,
        data_dir="data/samples",
        default_image_size=224,
    ),
    "vgg16": Model(
        name="VGG-16",
        short_name="VGG-16",
        parameters=138_357_544,
        sample="image",
        inputs=("dali", "dataloader", "synthetic"),
        optimizers=("momentum",),
        gpu_batch_size=64,
        cpu_batch_size=2,
        data_dir="data/samples",
        default_image_size=224,
    ),
    "bert": Model(
        name="BERT-base pre-training",
        short_name="BERT-base",
        parameters=110_106_428,
        sample="sequence",
        inputs=("dataloader", "synthetic"),
        optimizers=("adamw", "lamb"),
        gpu_batch_size=32,
        cpu_batch_size=2,
        data_dir="data/sequences",
        default_sequence_length=128,
    ),
}
"""The first entry of `inputs` and `optimizers` is the default."""
