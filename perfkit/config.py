"""Every parameter: its type, range and meaning, and what else holds of it. Imports nothing of
perfkit."""

import dataclasses
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

ROOT = Path(__file__).resolve().parent.parent
"""The checkout. Relative paths in parameters start here, wherever a notebook runs."""

LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$|^$"
DEVICE = r"^[a-z][a-z0-9_]{0,29}$"
HOSTS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
"""Names or addresses, comma-separated. None begins with a dash, which would be an option."""
NAMES = r"^([a-z_]+(,[a-z_]+)*)?$"
ALL = "all"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def _local(path: str) -> str:
    """A path of this machine's own files. Raises ValueError for a URL, the kernel's own folders
    and what no path has."""
    kernels_own = Path(path).parts[1:2] in (("proc",), ("sys",)) and path.startswith("/")
    if URL.match(path) or kernels_own or not path.isprintable():
        raise ValueError("not a folder for files on this machine")
    return path


LocalFolder = Annotated[str, Field(min_length=1), AfterValidator(_local)]


def resolved_path(path: str) -> Path:
    """`path` of a parameter as an absolute path without links: `~` is home, relative starts at
    ROOT."""
    return Path(os.path.realpath(ROOT / _expanded(path)))


def interpreter_path(python: str | None) -> str:
    """The interpreter that workers use, of the parameter `python`; links are not resolved, by
    which an environment is found."""
    return str(ROOT / _expanded(python)) if python else sys.executable


def typed_path(path: str) -> str:
    """A path as it was typed on a command line, where relative starts in the working directory,
    as a parameter has it. A URL stays."""
    return path if URL.match(path) else portable(str(_expanded(path).absolute()))


def _expanded(path: str) -> Path:
    """The path with `~` as home; of a user that there is not, `~name` stays."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def portable(text: str) -> str:
    """`text` without this machine's own paths: the checkout's left out, home written `~`.

    Results may be published; neither a user's name nor a folder's owner belongs in them.
    """
    shorter = {f"{ROOT}/": ""}
    shorter |= {str(home): "~" for home in (Path.home(), Path.home().resolve())}
    for path, short in shorter.items():
        if path != "/":
            # Only whole leading folders: /data/root is not in /root, nor is /rootfs.
            end = "" if path.endswith("/") else r"(?![\w.-])"
            text = re.sub(rf"(?<![\w./~-]){re.escape(path)}{end}", short, text)
    return text


@dataclass(frozen=True)
class About:
    """What holds of a parameter beside its type, range and description. Whatever distinguishes
    parameters looks here (`select`); no other place lists their names.

    `unset`: the word that leaves it open in a request; None where the field has no default.
    `words`: the usual ones of a text that may be another.
    `identifies`: whether another value makes another measurement. `compared`: whether two
    measurements must agree in it, may differ and the difference is shown, or is ignored; `key`
    is its name in comparisons, where that is another; `follows` the parameter along with which
    it may differ. `only`: parameter, `sample` of the model or `accelerated` -> the values
    without which it has no effect. `in_log`: whether a log can't be imported without it.
    `verified`: whether `perfkit verify` takes it. `private`: whether it is left out of what is
    exported. `is_path`: whether it is a path.
    """

    unset: str | None = None
    words: tuple[str, ...] = ()
    identifies: bool = True
    compared: Literal["agree", "show", "ignore"] = "agree"
    key: str = ""
    follows: str = ""
    only: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    in_log: bool = False
    verified: bool = False
    private: bool = False
    is_path: bool = False

    def is_for(self, name: str, value: Any) -> bool:
        """Whether it has an effect where parameter `name` has this value."""
        return value in self.only.get(name, (value,))


RUN = About(identifies=False, compared="ignore")
"""Where results go and how long that may take: no part of what is measured."""
OWN_CHOICE = About(follows="framework")
"""How a framework does the work."""
OF_IMAGES, OF_SEQUENCES = {"sample": ("image",)}, {"sample": ("sequence",)}
ON_GPU, ON_CPU = {"device": ("gpu",)}, {"device": ("cpu",)}
ACCELERATED = {"accelerated": (True,)}
BY_DALI = About(only={"input": ("dali",)})
BY_DATALOADER = About(only={"input": ("dataloader",)})
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

ModelName = Literal["resnet50", "vgg16", "bert", "gpt"]
FrameworkName = Literal["paddle", "torch", "jax", "tensorflow", "mxnet", "oneflow"]
Precision = Literal["fp32", "amp", "pure_fp16", "bf16", "auto"]
Execution = Literal["dynamic", "static"]
Optimizer = Literal["momentum", "adamw", "lamb"]
Layout = Literal["NCHW", "NHWC"]
Launcher = Literal["local", "srun", "mpirun", "manual"]
Strategy = Literal[
    "none",
    "fleetx-fp32",
    "fleetx-amp",
    "fleetx-auto",
    "fleetx-vgg16-fp32",
    "fleetx-vgg16-amp",
]


class Config(BaseModel):
    """A configuration: everything that defines the work. Field names are notebook parameters.

    Every field is set. None means that the model has none (`image_size` of bert), that the
    launcher needs none (`hosts`), that any will do (`port`) or, in an imported measurement,
    that the log does not tell. `request.resolve` chooses where a request has None or "auto".
    """

    model_config = STRICT

    model: Annotated[ModelName, About(in_log=True)]
    """the model to train"""
    framework: Annotated[FrameworkName, About(in_log=True)] = "paddle"
    """the framework that trains; of imported logs, the last one too"""
    precision: Annotated[Precision, About(in_log=True)] = "fp32"
    """number format of the training: amp is O1 and pure_fp16 O2 with float16, bf16 is O1 with
    bfloat16; auto leaves it to strategy=fleetx-auto"""
    tf32: Annotated[bool, About(only=ON_GPU)] = False
    """let a GPU's tensor cores round fp32 factors to TF32"""
    execution: Annotated[Execution | None, OWN_CHOICE]
    """dynamic graph (tensorflow: tf.function), or compiled by to_static, torch.compile, jit,
    XLA or hybridize; None: dynamic, static for jax and mxnet"""
    strategy: Annotated[Strategy, OWN_CHOICE] = "none"
    """preset of distributed-training options"""
    optimizer: Annotated[Optimizer | None, About(verified=True)]
    """None: momentum for images, adamw for sequences; lamb is for bert too"""
    layout: Annotated[Layout | None, replace(OWN_CHOICE, only=OF_IMAGES)]
    """memory layout of images; None: NCHW, NHWC for torch, jax, tensorflow, and for paddle on a
    GPU in less than fp32"""
    batch_size: Annotated[int, Field(ge=1, le=65536), About(in_log=True, verified=True)]
    """samples per device and micro-batch; None: chosen by model and device"""
    accumulate: Annotated[int, Field(ge=1, le=65536), About(in_log=True)] = 1
    """micro-batches per optimizer step"""
    image_size: Annotated[
        int | None, Field(ge=32, le=1024), About(verified=True, only=OF_IMAGES)
    ]
    """height and width of the images, pixels; None: 224"""
    sequence_length: Annotated[
        int | None, Field(ge=16, le=1024), About(verified=True, only=OF_SEQUENCES)
    ]
    """tokens per sequence; None: 128, of gpt on a GPU 1024"""
    seed: Annotated[int, Field(ge=0, lt=2**31), About(verified=True)] = 0
    """of the weights and, with DALI, of the images' order and crops"""

    device: Annotated[
        str,
        Field(pattern=DEVICE),
        About(unset="auto", words=("cpu", "gpu"), in_log=True),
    ]
    """what trains; auto: the GPUs, or the CPU where there are none; also another type of device
    that Paddle shows, such as npu or xpu"""
    gpus: Annotated[int, Field(ge=0, le=64), About(key="topology", only=ACCELERATED)]
    """GPUs, or devices of another type, per node; None: all visible, or the CPU where there are
    none"""
    processes: Annotated[int, Field(ge=1, le=256), About(key="topology", only=ON_CPU)]
    """worker processes per node on the CPU; None: 1"""
    nodes: Annotated[int, Field(ge=1, le=512), About(key="topology")] = 1
    """number of nodes"""
    launcher: Annotated[Launcher | None, About(compared="show")]
    """what starts the workers: srun in a Slurm allocation, mpirun on hosts over ssh, manual:
    you, by this same command on every host; None: local for one node, srun for several"""
    hosts: Annotated[
        str | None,
        Field(pattern=HOSTS),
        About(compared="show", private=True, only={"launcher": ("mpirun", "manual")}),
    ] = None
    """names or addresses of the nodes, comma-separated, this one first; for mpirun and
    manual"""
    port: Annotated[int | None, Field(ge=1024, le=65534), RUN] = None
    """TCP port of the first node, where the nodes meet; the workers use the next port; None:
    any free port, 29400 for manual"""
    cpu_tuning: Annotated[bool, About(verified=True)] = True
    """set threads and MKL path on a CPU; False: the framework as installed"""
    disable_tuning: Annotated[str, Field(pattern=NAMES), replace(OWN_CHOICE, only=ON_GPU)] = ""
    """GPU settings to leave as installed, comma-separated; all of them: all"""
    python: Annotated[
        str | None, Field(min_length=1), About(compared="ignore", is_path=True)
    ] = None
    """interpreter of the workers; None: the driver's"""

    input: Annotated[Literal["dali", "dataloader", "synthetic"], About(in_log=True)]
    """where batches come from; None: dali for images, dataloader for sequences"""
    data_dir: Annotated[LocalFolder, About(compared="show", key="input_sha256", is_path=True)]
    """folder of the data set; train/ and train_list.txt, HDF5 shards for bert, token files for
    gpt; None: data/samples, data/sequences for bert, data/tokens for gpt"""
    dali_threads: Annotated[int | None, Field(ge=0, le=256), BY_DALI]
    """DALI's CPU threads per device; None: 4 on a CPU, on a GPU 0: by the cores per GPU"""
    dali_prefetch: Annotated[int | None, Field(ge=0, le=64), BY_DALI]
    """batches that DALI prepares ahead; None: 2 on a CPU, on a GPU 0: by the cores per GPU"""
    dali_decoder: Annotated[
        Literal["image", "image_random_crop"], replace(BY_DALI, unset="auto")
    ] = "image_random_crop"
    """DALI's decoder: image decodes whole images, also by the hardware decoder of A100 and
    later, and crops after; auto: image on a GPU, image_random_crop on a CPU"""
    dali_hw_decoder_load: Annotated[
        float, Field(ge=0, le=1), About(only={"input": ("dali",), "device": ("gpu",)})
    ] = 0.65
    """share of the images that the hardware decoder takes (GPU)"""
    dali_crop_attempts: Annotated[int, Field(ge=1, le=1000), BY_DALI] = 100
    """tries for a random crop of wanted area and aspect"""
    dali_device_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 211_025_920
    """nvJPEG device memory set aside, bytes (GPU)"""
    dali_host_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 140_544_512
    """nvJPEG pinned memory set aside, bytes (GPU)"""
    # Not 0: without processes of its own, Paddle's DataLoader waits for ever after an error.
    dataloader_workers: Annotated[int, Field(ge=1, le=256), BY_DATALOADER] = 4
    """processes of the framework's DataLoader"""

    timeout: Annotated[int, Field(ge=1, le=7 * 24 * 3600), replace(RUN, verified=True)] = 1800
    """seconds after which a repeat is ended, and a missing node is given up"""
    outputs_dir: Annotated[LocalFolder, replace(RUN, verified=True, is_path=True)] = "outputs"
    """folder that receives the results"""
    label: Annotated[str, Field(pattern=LABEL), About(compared="show")] = ""
    """a name of your own; a new one starts a new measurement"""

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
        """Height and width of an image, pixels, or tokens of a sequence; 0 if a log does not
        tell it."""
        return self.image_size or self.sequence_length or 0

    @property
    def host_list(self) -> list[str]:
        """The names in `hosts`; none where it is not for the launcher."""
        return self.hosts.split(",") if self.hosts else []

    @property
    def listen_port(self) -> int:
        """`port` as the system takes it: 0 for any free one."""
        return self.port or 0

    @property
    def interpreter(self) -> str:
        """The path of the interpreter that runs the workers, absolute."""
        return interpreter_path(self.python)

    @property
    def data_folder(self) -> Path:
        """`data_dir` as an absolute path."""
        return resolved_path(self.data_dir)

    @property
    def accelerated(self) -> bool:
        """Whether something else than CPUs trains: work is handed over and done later."""
        return self.device != "cpu"

    @property
    def devices(self) -> int:
        """Worker processes per node, one for each GPU or other device that trains."""
        return self.gpus if self.accelerated else self.processes

    @property
    def ranks(self) -> int:
        """Worker processes of all nodes."""
        return self.nodes * self.devices

    @property
    def topology(self) -> str:
        """`NxG`: nodes x devices per node, written as the published tables write it."""
        return f"{self.nodes}x{self.devices}"

    @property
    def disabled_tuning(self) -> set[str]:
        """The names in `disable_tuning`."""
        return {*self.disable_tuning.split(",")} - {""}

    def tunes(self, setting: str) -> bool:
        """Whether `disable_tuning` does not name this setting."""
        return not self.disabled_tuning & {setting, ALL}

    @property
    def identity(self) -> dict[str, Any]:
        """The values of which another one makes another measurement."""
        return self.model_dump(exclude={*select(identifies=False)})


FEWEST_TO_END = 7
"""The fewest repeats whose range is an interval of 98 % for the median (results/schema.py)."""
IGNORED = About(compared="ignore")


class Protocol(BaseModel):
    """How it is measured. A step is one optimizer step; a repeat, fresh worker processes."""

    model_config = STRICT

    name: Annotated[Literal["published", "steady", "quick"], replace(IGNORED, unset="auto")]
    """whose values it began with"""
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)]
    """steps dropped at the start of a repeat; auto: until the steps are steady"""
    measured_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps in the window, after the warm-up"""
    warmup_limit: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """let the warm-up last until the steps are steady, at most so many of them; None: just
    warmup_steps, for warmup_steps=auto at most 1000"""
    warmup_seconds: Annotated[int | None, Field(ge=1, le=7 * 24 * 3600), IGNORED] = None
    """with warmup_limit, end the warm-up after so many seconds; None: no limit, for
    warmup_steps=auto 600"""
    repeats: Annotated[int, Field(ge=1, le=1000), IGNORED]
    """fresh runs of the workers; auto: as many as interval_target needs"""
    interval_target: Annotated[float | None, Field(gt=0, lt=1), IGNORED] = None
    """end early, once the interval is narrower than this share of the median; None: make all
    repeats, for repeats=auto 0.02"""
    budget: Annotated[int | None, Field(ge=1, le=30 * 24 * 3600), IGNORED] = None
    """with interval_target, begin no repeat after so many seconds of measuring; None: no limit,
    for repeats=auto 3600"""
    statistic: Literal["median"] = "median"
    """what the number is of the repeats' throughputs"""

    @property
    def steps(self) -> int:
        """Steps of a repeat, warm-up included; with `warmup_limit`, at least."""
        return self.warmup_steps + self.measured_steps

    @property
    def warmup_words(self) -> str:
        """The number of warm-up steps, or the most."""
        return f"≤ {self.warmup_limit}" if self.warmup_limit else str(self.warmup_steps)

    @model_validator(mode="after")
    def _warmup_can_end(self) -> Self:
        if self.warmup_limit is None:
            if self.warmup_seconds is not None:
                raise ValueError("warmup_seconds: is for warmup_limit or warmup_steps=auto")
        elif self.warmup_limit < self.warmup_steps:
            raise ValueError(
                f"warmup_limit: {self.warmup_limit} is less than warmup_steps="
                f"{self.warmup_steps}, the fewest steps of the warm-up"
            )
        return self

    @model_validator(mode="after")
    def _can_end_early(self) -> Self:
        if self.budget is not None and self.interval_target is None:
            raise ValueError("budget: is for interval_target or repeats=auto")
        if self.interval_target is not None and self.repeats < FEWEST_TO_END:
            raise ValueError(
                f"interval_target: says nothing of fewer than {FEWEST_TO_END} repeats; "
                "-p repeats auto, or a number of them"
            )
        return self

    @classmethod
    def named(cls, name: str, **overrides: float | str | None) -> Self:
        """The protocol `name` (one of PROTOCOLS) with the overrides that are not None, of which
        `repeats` and `warmup_steps` may be "auto"."""
        given = {field: value for field, value in overrides.items() if value is not None}
        if given.get("repeats") == "auto":
            given = AUTO | given | {"repeats": AUTO["repeats"]}
        if given.get("warmup_steps") == "auto":
            given = AUTO_WARMUP | given | {"warmup_steps": 0}
        return cls.model_validate({"name": name} | PROTOCOLS[name] | given)


AUTO_WARMUP: dict[str, Any] = {"warmup_steps": 0, "warmup_limit": 1000, "warmup_seconds": 600}
"""What warmup_steps=auto stands for."""

PROTOCOLS: dict[str, dict[str, Any]] = {
    # Steps 1-20 dropped, 21-120 measured, 7 runs, median: the method that the FleetX
    # ResNet-50 and VGG-16 benchmark pages state.
    "published": {"warmup_steps": 20, "measured_steps": 100, "repeats": 7},
    "steady": AUTO_WARMUP | {"measured_steps": 100, "repeats": 7},
    # Five is the fewest repeats whose range is an interval of over 90 % for the median.
    "quick": {"warmup_steps": 2, "measured_steps": 5, "repeats": 5},
}

AUTO: dict[str, Any] = {"repeats": 100, "interval_target": 0.02, "budget": 3600}
"""What repeats=auto stands for."""

FIELDS = {name: field for name, field in Config.model_fields.items() if name != "model"} | {
    # The notebooks have the model's name in their own, and there is only one statistic.
    {"name": "protocol"}.get(name, name): field
    for name, field in Protocol.model_fields.items()
    if name != "statistic"
}
"""Every notebook parameter's field, by name."""
ABOUT = {
    name: next((one for one in field.metadata if isinstance(one, About)), About())
    for name, field in ({"model": Config.model_fields["model"]} | FIELDS).items()
}
PROTOCOL_PARAMETERS = tuple(name for name in FIELDS if name not in Config.model_fields)


def select(**wanted: Any) -> tuple[str, ...]:
    """The parameters of which About has all of these values: `select(is_path=True)`."""
    return tuple(
        name
        for name, about in ABOUT.items()
        if all(getattr(about, key) == value for key, value in wanted.items())
    )


def choices(name: str) -> tuple[str, ...]:
    """The words that a parameter may have, or usually has; none for other types."""
    field, unset = (FIELDS | Config.model_fields)[name], ABOUT[name].unset
    kinds = (field.annotation, *get_args(field.annotation))
    usual = ABOUT[name].words
    words = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), usual)
    return (unset, *words) if unset else words


def is_open(name: str, value: object) -> bool:
    """Whether a request with this value leaves the parameter to `request.resolve`."""
    default = parameters()[name][0]
    return default in (None, "auto") and value in (None, default)


@cache
def parameters() -> dict[str, tuple[Any, str]]:
    """Every notebook parameter: name -> (default, meaning with the words it may have)."""
    known = {}
    for name, field in FIELDS.items():
        meaning, words = " ".join(str(field.description).split()), choices(name)
        if name == "protocol":
            meaning = "auto: published on a GPU, quick on the CPU" + "".join(
                f"; {key}: {p.warmup_words} + {p.measured_steps} steps x {p.repeats}"
                for key, p in ((key, Protocol.named(key)) for key in PROTOCOLS)
            )
        elif name in PROTOCOL_PARAMETERS and field.is_required():
            meaning += "; None: as the protocol has it"
        elif words:
            meaning += f" ({' | '.join(words)})"
        unset = ABOUT[name].unset
        default = unset if unset or field.is_required() else field.default
        known[name] = (default, meaning)
    return known


def run_command(model: str, values: dict[str, Any]) -> list[str]:
    """The words of the `perfkit run` that measures `model` with these parameters."""
    options = [word for name, value in values.items() for word in ("-p", name, str(value))]
    return ["perfkit", "run", model, *options]


def parameter_values(config: Config, protocol: Protocol) -> dict[str, Any]:
    """The values of all notebook parameters, by name, that stand for these two."""
    values = config.model_dump() | protocol.model_dump() | {"protocol": protocol.name}
    return {name: values[name] for name in FIELDS}
