"""All parameters but a script's own: type, range, description and properties."""

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from perfkit.core.paths import interpreter_path, is_local_folder, stored_path

LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$|^$"
DEVICE = r"^[a-z][a-z0-9_]{0,29}$"
HOSTS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
"""Names or addresses, comma-separated, without a leading dash, which would start an option."""
NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$|^$"
NAMES = r"^([a-z_]+(,[a-z_]+)*)?$"
ALL = "all"


def _local_folder(path: str) -> str:
    if not is_local_folder(path):
        raise ValueError("not a folder for files on this machine")
    return path


LocalFolder = Annotated[str, Field(min_length=1), AfterValidator(_local_folder)]


@dataclass(frozen=True)
class About:
    """Properties of a parameter besides its type, range and description. Code that treats
    parameters differently uses these (`select`); no other place lists parameter names.

    `unset`: the word that leaves it open in a request; None if the field has no default.
    `usual`: usual values of a text without fixed choices.
    `identifies`: whether another value makes another measurement. `compared`: whether two
    measurements must agree in it, may differ and show the difference, or ignore it; `key`: its
    name in comparisons, if different; `follows`: the parameter along with which it may differ.
    `only`: parameter, `sample` of the model, or `accelerated` -> the values with which it has
    an effect; a model that can have none of them does not take the parameter.
    `verified`: whether `perfkit verify` accepts it. `is_path`: whether it is a path. `after`:
    the parameter that it follows in notebooks, if that is one of RunConfig.
    """

    unset: str | None = None
    usual: tuple[str, ...] = ()
    identifies: bool = True
    compared: Literal["agree", "show", "ignore"] = "agree"
    key: str = ""
    follows: str = ""
    only: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    verified: bool = False
    is_path: bool = False
    after: str = ""

    def is_for(self, name: str, value: Any) -> bool:
        """Return whether it has an effect if parameter `name` has this value."""
        return value in self.only.get(name, (value,))


RUN = About(identifies=False, compared="ignore")
"""Location of results and limits of time, which do not affect the measurement."""
OWN_CHOICE = About(follows="framework")
"""Choices that may differ with the framework."""
OF_IMAGES, OF_SEQUENCES = {"sample": ("image",)}, {"sample": ("sequence",)}
IN_SIZES = {"model": ("gpt", "llama")}
OF_LLAMA = About(only={"model": ("llama",)})
ON_GPU, ON_CPU = {"device": ("gpu",)}, {"device": ("cpu",)}
ACCELERATED = {"accelerated": (True,)}
BY_DALI = About(only={"input": ("dali",)})
BY_DATALOADER = About(only={"input": ("dataloader",)})
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

ModelName = Literal["resnet50", "vgg16", "bert", "gpt", "llama"]
ModelSize = Literal["124M", "355M", "774M", "1558M", "tiny", "1b", "8b"]
FrameworkName = Literal["paddle", "torch", "jax", "tensorflow", "mxnet"]
Precision = Literal["fp32", "amp", "pure_fp16", "bf16", "auto"]
Execution = Literal["dynamic", "static"]
Optimizer = Literal["momentum", "adamw", "lamb"]
Layout = Literal["NCHW", "NHWC"]
Launcher = Literal["local", "srun", "ssh"]
Sharding = Literal["none", "gradients", "full"]
Recompute = Literal["none", "full"]
Strategy = Literal[
    "none", "fleetx-fp32", "fleetx-amp", "fleetx-auto", "fleetx-vgg16-fp32", "fleetx-vgg16-amp"
]


def about_of(field: FieldInfo) -> About:
    """Return the properties of a parameter besides its type, range and description."""
    for item in field.metadata:
        if isinstance(item, About):
            return item
    return About()


class RunConfig(BaseModel):
    """How a training runs, whatever it trains. Field names are notebook parameters.

    Every field is set. None means not needed by the launcher (`hosts`), any (`port`) or the
    driver's (`python`).
    """

    model_config = STRICT

    framework: FrameworkName
    """training framework"""
    device: Annotated[str, Field(pattern=DEVICE), About(unset="auto", usual=("cpu", "gpu"))]
    """training device, also npu, xpu or another of Paddle's types; auto: gpu, else cpu"""
    gpus: Annotated[int, Field(ge=0, le=64), About(key="topology", only=ACCELERATED)]
    """GPUs, or devices of another type, per node; None: all visible; without any, the CPU"""
    processes: Annotated[int, Field(ge=1, le=256), About(key="topology", only=ON_CPU)]
    """worker processes per node on the CPU; None: 1"""
    nodes: Annotated[int, Field(ge=1, le=512), About(key="topology")] = 1
    """number of nodes"""
    launcher: Annotated[Launcher, About(compared="show")]
    """launcher of the nodes: srun in a Slurm allocation; ssh to hosts; None: local for one
    node, srun for several"""
    hosts: Annotated[
        str | None,
        Field(pattern=HOSTS),
        About(compared="show", only={"launcher": ("ssh",)}),
    ] = None
    """nodes' names or addresses, comma-separated, the driver's first; for ssh"""
    node: Annotated[str, Field(pattern=NODE), About(verified=True)] = ""
    """name of this node in a fleet, in which each node has a measurement of its own; set by
    sweep --each-node"""
    port: Annotated[int | None, Field(ge=1024, le=65535), RUN] = None
    """TCP port of the first node at which the workers of several nodes meet; None: any free
    port"""
    cpu_tuning: Annotated[bool, About(verified=True)] = True
    """set threads and MKL path on a CPU; False: the framework's defaults"""
    python: Annotated[
        str | None, Field(min_length=1), About(compared="ignore", is_path=True)
    ] = None
    """interpreter of the workers; None: the driver's"""
    timeout: Annotated[int, Field(ge=1, le=7 * 24 * 3600), replace(RUN, verified=True)] = 1800
    """limit for a repeat, and for the wait for nodes, seconds"""
    outputs_dir: Annotated[LocalFolder, replace(RUN, verified=True, is_path=True)] = "outputs"
    """folder of the results"""
    label: Annotated[str, Field(pattern=LABEL), About(compared="show")] = ""
    """a name of your choice; a new name starts a new measurement"""

    @property
    def host_list(self) -> list[str]:
        return self.hosts.split(",") if self.hosts else []

    @property
    def interpreter(self) -> str:
        """The absolute path of the workers' interpreter."""
        return interpreter_path(self.python)

    @property
    def accelerated(self) -> bool:
        """Whether an accelerator trains, which executes work asynchronously."""
        return self.device != "cpu"

    @property
    def devices(self) -> int:
        """Worker processes per node: one per GPU or other device."""
        return self.gpus if self.accelerated else self.processes

    @property
    def ranks(self) -> int:
        """Worker processes of all nodes."""
        return self.nodes * self.devices

    @property
    def topology(self) -> str:
        """`NxG`: nodes x devices per node, as in the published tables."""
        return f"{self.nodes}x{self.devices}"

    @property
    def data_folder(self) -> Path | None:
        """The folder of the data set as an absolute path; None if perfkit does not know it."""
        return None

    @property
    def identity(self) -> dict[str, Any]:
        """The values that identify a measurement."""
        return self.model_dump(exclude=self.not_identifying())

    @classmethod
    def not_identifying(cls) -> set[str]:
        """Return the names of the fields that don't identify a measurement."""
        fields = cls.model_fields.items()
        return {name for name, field in fields if not about_of(field).identifies}


class Config(RunConfig):
    """The configuration of a built-in model: everything that defines the work, and how it runs.
    None means not applicable (`image_size` of bert).

    `request.resolve` replaces None and "auto" of a request.
    """

    model: ModelName
    """the model to train"""
    framework: FrameworkName = "paddle"
    """training framework"""
    precision: Annotated[Precision, About(after="framework")] = "fp32"
    """number format of the training: amp is O1 and pure_fp16 O2 with float16, bf16 is O1 with
    bfloat16; auto leaves it to strategy=fleetx-auto"""
    tf32: Annotated[bool, About(only=ON_GPU)] = False
    """allow a GPU's tensor cores to round fp32 factors to TF32"""
    execution: Annotated[Execution, OWN_CHOICE]
    """how the graph is executed; dynamic (tensorflow: tf.function), or compiled by to_static,
    torch.compile, jit, XLA or hybridize; None: dynamic, static for jax and mxnet"""
    strategy: Annotated[Strategy, OWN_CHOICE] = "none"
    """preset of distributed-training options"""
    sharding: Annotated[Sharding, OF_LLAMA] = "none"
    """what the devices divide among them; weights, gradients and optimizer states are divided
    layer by layer; gradients (ZeRO-2): a device gathers all weights for forward and backward
    pass; full (ZeRO-3): those of one layer at a time; none: each device has all"""
    recompute: Annotated[Recompute, OF_LLAMA] = "none"
    """activations to compute again in the backward pass, instead of keeping them; full: all
    within a layer of a transformer"""
    model_size: Annotated[ModelSize | None, About(verified=True, only=IN_SIZES)] = None
    """size of the model; None: 124M of gpt, 1b of llama, on a CPU tiny"""
    optimizer: Annotated[Optimizer, About(verified=True)]
    """optimizer; None: momentum for images, adamw for sequences; lamb: bert only"""
    layout: Annotated[Layout | None, replace(OWN_CHOICE, only=OF_IMAGES)]
    """memory layout of images; None: NHWC for torch, jax, tensorflow, and for paddle on a GPU
    with a precision below fp32, otherwise NCHW"""
    batch_size: Annotated[int, Field(ge=1, le=65536), About(verified=True)]
    """samples per device and micro-batch; None: a default for model and device"""
    accumulate: Annotated[int, Field(ge=1, le=65536)] = 1
    """micro-batches per optimizer step"""
    image_size: Annotated[
        int | None, Field(ge=32, le=1024), About(verified=True, only=OF_IMAGES)
    ]
    """height and width of the images, pixels; None: 224"""
    sequence_length: Annotated[
        int | None, Field(ge=16, le=32_768), About(verified=True, only=OF_SEQUENCES)
    ]
    """tokens per sequence; None: 128, on a GPU 1024 for gpt, 8192 for llama"""
    seed: Annotated[int, Field(ge=0, lt=2**31), About(verified=True)] = 0
    """random seed of weights, dropout, synthetic batches and the order of samples; with DALI
    also of the crops"""
    disable_tuning: Annotated[
        str, Field(pattern=NAMES), replace(OWN_CHOICE, only=ON_GPU, after="cpu_tuning")
    ] = ""
    """GPU settings to leave at the framework's defaults, comma-separated; all: all of them"""

    input: Annotated[Literal["dali", "dataloader", "synthetic"], About(after="python")]
    """source of the batches; None: dali for images, dataloader for sequences"""
    data_dir: Annotated[LocalFolder, About(compared="show", key="input_sha256", is_path=True)]
    """folder of the data set; train/ and train_list.txt, HDF5 shards for bert, token files for
    gpt and llama; None: data/samples, data/sequences for bert, data/tokens for gpt,
    data/llama-tokens for llama"""
    dali_threads: Annotated[int, Field(ge=0, le=256), BY_DALI]
    """DALI's CPU threads per device; 0: by the cores per GPU; None: 4 on a CPU, 0 on a GPU"""
    dali_prefetch: Annotated[int, Field(ge=0, le=64), BY_DALI]
    """batches that DALI prefetches; 0: by the cores per GPU; None: 2 on a CPU, 0 on a GPU"""
    dali_decoder: Annotated[
        Literal["image", "image_random_crop"], replace(BY_DALI, unset="auto")
    ] = "image_random_crop"
    """DALI's decoder: image decodes whole images, on A100 and later also with the hardware
    decoder, and crops afterwards; auto: image on a GPU, image_random_crop on a CPU"""
    dali_hw_decoder_load: Annotated[
        float, Field(ge=0, le=1), About(only={"input": ("dali",), "device": ("gpu",)})
    ] = 0.65
    """share of the images for the hardware decoder (GPU)"""
    dali_crop_attempts: Annotated[int, Field(ge=1, le=1000), BY_DALI] = 100
    """attempts to find a random crop within limits of area and aspect"""
    dali_device_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 211_025_920
    """preallocated nvJPEG device memory, bytes (GPU)"""
    dali_host_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 140_544_512
    """preallocated nvJPEG pinned memory, bytes (GPU)"""
    # Not 0: without worker processes, Paddle's DataLoader hangs after an error.
    dataloader_workers: Annotated[int, Field(ge=1, le=256), BY_DATALOADER] = 4
    """processes (TensorFlow: threads) of the framework's DataLoader"""

    @model_validator(mode="after")
    def _has_sample_size(self) -> Self:
        if self.image_size is None and self.sequence_length is None:
            raise ValueError("image_size, sequence_length: one of them must be set")
        return self

    @property
    def samples_per_step(self) -> int:
        """Samples per optimizer step of one rank."""
        return self.batch_size * self.accumulate

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step of all ranks."""
        return self.samples_per_step * self.ranks

    @property
    def sample_size(self) -> int:
        """Height and width of an image, pixels, or tokens of a sequence."""
        size = self.image_size or self.sequence_length
        assert size
        return size

    @property
    def data_folder(self) -> Path:
        """`data_dir` as an absolute path."""
        return stored_path(self.data_dir)

    @property
    def is_sharded(self) -> bool:
        """Whether weights, gradients and optimizer states are divided among the ranks."""
        return self.sharding != "none"

    @property
    def disabled_tuning(self) -> set[str]:
        return {*self.disable_tuning.split(",")} - {""}

    def tunes(self, setting: str) -> bool:
        """Return whether this GPU setting is not disabled."""
        return not self.disabled_tuning & {setting, ALL}


FEWEST_TO_END = 7
"""The fewest repeats whose range is a 98 % interval for the median (results/schema.py)."""
IGNORED = About(compared="ignore")


class Protocol(BaseModel):
    """How a configuration is measured. A repeat starts fresh worker processes."""

    model_config = STRICT

    name: Annotated[Literal["published", "steady", "quick"], replace(IGNORED, unset="auto")]
    """the protocol that provides the defaults"""
    warmup_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps dropped at the start of a repeat; auto: until the steps are steady"""
    measured_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps in the window, after the warm-up"""
    warmup_limit: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """extend the warm-up until the steps are steady, up to this number of steps; None: exactly
    warmup_steps, for warmup_steps=auto up to 1000"""
    warmup_seconds: Annotated[int | None, Field(ge=1, le=7 * 24 * 3600), IGNORED] = None
    """with warmup_limit, longest warm-up, seconds; None: no limit, 600 for warmup_steps=auto"""
    repeats: Annotated[int, Field(ge=1, le=1000), IGNORED]
    """fresh runs of the workers; auto: as many as interval_target needs"""
    interval_target: Annotated[float | None, Field(gt=0, lt=1), IGNORED] = None
    """stop when the interval is below this share of the median; None: run all repeats,
    for repeats=auto 0.02"""
    budget: Annotated[int | None, Field(ge=1, le=30 * 24 * 3600), IGNORED] = None
    """with interval_target, start no repeat after this time, seconds; None: no limit, for
    repeats=auto 3600"""
    statistic: Literal["median"] = "median"
    """statistic over the repeats' throughputs"""

    @property
    def steps(self) -> int:
        """Steps of a repeat including the warm-up; with `warmup_limit`, the minimum."""
        return self.warmup_steps + self.measured_steps

    @property
    def warmup_words(self) -> str:
        """The number of warm-up steps, or its limit, as text."""
        return f"≤ {self.warmup_limit}" if self.warmup_limit else str(self.warmup_steps)

    @model_validator(mode="after")
    def _warmup_can_end(self) -> Self:
        if self.warmup_limit is None:
            if self.warmup_seconds is not None:
                raise ValueError("warmup_seconds: needs warmup_limit or warmup_steps=auto")
        elif self.warmup_limit < self.warmup_steps:
            raise ValueError(
                f"warmup_limit: {self.warmup_limit} is less than warmup_steps="
                f"{self.warmup_steps}, the minimum length of the warm-up"
            )
        return self

    @model_validator(mode="after")
    def _can_end_early(self) -> Self:
        if self.budget is not None and self.interval_target is None:
            raise ValueError("budget: needs interval_target or repeats=auto")
        if self.interval_target is not None and self.repeats < FEWEST_TO_END:
            raise ValueError(
                f"interval_target: needs at least {FEWEST_TO_END} repeats: -p repeats auto, or "
                f"-p repeats {FEWEST_TO_END}"
            )
        return self

    @classmethod
    def named(cls, name: str, **overrides: float | str | None) -> Self:
        """Return protocol `name` with overrides; `repeats` and `warmup_steps` may be "auto"."""
        values = {field: value for field, value in overrides.items() if value is not None}
        if values.get("repeats") == "auto":
            del values["repeats"]
            values = AUTO | values
        if values.get("warmup_steps") == "auto":
            del values["warmup_steps"]
            values = AUTO_WARMUP | values
        return cls.model_validate({"name": name} | PROTOCOLS[name] | values)


AUTO_WARMUP: dict[str, Any] = {"warmup_steps": 1, "warmup_limit": 1000, "warmup_seconds": 600}
"""What warmup_steps=auto stands for."""

PROTOCOLS: dict[str, dict[str, Any]] = {
    # Steps 1-20 dropped, 21-120 measured, 7 runs, median: the method of the FleetX ResNet-50
    # and VGG-16 benchmark pages.
    "published": {"warmup_steps": 20, "measured_steps": 100, "repeats": 7},
    "steady": AUTO_WARMUP | {"measured_steps": 100, "repeats": 7},
    # Five repeats are the fewest whose range is an interval of over 90 % for the median.
    "quick": {"warmup_steps": 2, "measured_steps": 5, "repeats": 5},
}

AUTO: dict[str, Any] = {"repeats": 100, "interval_target": 0.02, "budget": 3600}
"""What repeats=auto stands for."""
