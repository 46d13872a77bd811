"""Every parameter: its type, range and meaning, and what else holds of it. Imports nothing of
perfkit."""

import dataclasses
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

ROOT = Path(__file__).resolve().parent.parent
"""The checkout. Relative paths in parameters start here, wherever a notebook runs."""

LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$|^$"
HOSTS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
"""Names or addresses, comma-separated. None begins with a dash, which would be an option."""


def resolved_path(path: str) -> Path:
    """`path` of a parameter as an absolute path: `~` is home, relative starts at ROOT."""
    return ROOT / _expanded(path)


def typed_path(path: str) -> str:
    """A path as it was typed on a command line, where relative starts in the working directory,
    as a parameter has it."""
    return portable(str(_expanded(path).absolute()))


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

    `unset`: the word that leaves it open in a request, where the field has no default.
    `identifies`: whether another value makes another measurement. `compared`: whether two
    measurements must agree in it, may differ and the difference is shown, or is ignored; `key`
    is its name in comparisons, where that is another; `follows` the parameter along with which
    it may differ. `only`: parameter, or `sample` of the model -> the values without which it
    has no effect. `in_log`: whether a log can't be imported without it. `verified`: whether
    `perfkit verify` takes it. `private`: whether it is left out of what is exported. `is_path`:
    whether it is a folder.
    """

    unset: str | None = None
    identifies: bool = True
    compared: Literal["agree", "show", "ignore"] = "agree"
    key: str = ""
    follows: str = ""
    only: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    in_log: bool = False
    verified: bool = False
    private: bool = False
    is_path: bool = False

    def is_for(self, name: str, value: str) -> bool:
        """Whether it has an effect where parameter `name` has this value."""
        return value in self.only.get(name, (value,))


RUN = About(identifies=False, compared="ignore")
"""Where results go and how long that may take: no part of what is measured."""
OWN_CHOICE = About(follows="framework")
"""How a framework does the work."""
OF_IMAGES, OF_SEQUENCES = {"sample": ("image",)}, {"sample": ("sequence",)}
ON_GPU, ON_CPU = {"device": ("gpu",)}, {"device": ("cpu",)}
BY_DALI = About(only={"input": ("dali",)})
BY_DATALOADER = About(only={"input": ("dataloader",)})
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

ModelName = Literal["resnet50", "vgg16", "bert"]
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
    """the framework that trains; of imported logs, the last three too"""
    precision: Annotated[Precision, About(in_log=True)] = "fp32"
    """number format of the training: amp is O1 and pure_fp16 O2 with float16, bf16 is O1 with
    bfloat16; auto leaves it to strategy=fleetx-auto"""
    tf32: Annotated[bool, About(only=ON_GPU)] = False
    """let a GPU's tensor cores round fp32 factors to TF32"""
    execution: Annotated[Execution | None, OWN_CHOICE]
    """dynamic graph, or compiled by to_static, torch.compile or jit; None: dynamic, static for
    jax"""
    strategy: Annotated[Strategy, OWN_CHOICE] = "none"
    """preset of distributed-training options"""
    optimizer: Annotated[Optimizer | None, About(verified=True)]
    """None: momentum for images, adamw for bert; lamb is for bert too"""
    layout: Annotated[Layout | None, replace(OWN_CHOICE, only=OF_IMAGES)]
    """memory layout of images; None: NCHW, NHWC for torch and jax"""
    batch_size: Annotated[int, Field(ge=1, le=65536), About(in_log=True, verified=True)]
    """samples per device and micro-batch; None: chosen by model and device"""
    accumulate: Annotated[int, Field(ge=1, le=65536), About(in_log=True)] = 1
    """micro-batches per optimizer step"""
    image_size: Annotated[
        int | None, Field(ge=32, le=1024), About(verified=True, only=OF_IMAGES)
    ]
    """height and width of the images, pixels; None: 224"""
    sequence_length: Annotated[
        int | None, Field(ge=16, le=512), About(verified=True, only=OF_SEQUENCES)
    ]
    """tokens per sequence of bert; None: 128"""
    seed: Annotated[int, Field(ge=0, lt=2**31), About(verified=True)] = 0
    """of the weights and, with DALI, of the images' order and crops"""

    device: Annotated[Literal["cpu", "gpu"], About(unset="auto", in_log=True)]
    """what trains; auto: the GPUs, or the CPU where there are none"""
    gpus: Annotated[int, Field(ge=0, le=64), About(key="topology", only=ON_GPU)]
    """GPUs per node; None: all visible, or the CPU where there are none"""
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

    input: Annotated[Literal["dali", "dataloader", "synthetic"], About(in_log=True)]
    """where batches come from; None: dali for images, dataloader for bert"""
    data_dir: Annotated[
        str, Field(min_length=1), About(compared="show", key="input_sha256", is_path=True)
    ]
    """folder with train/ and train_list.txt, or with HDF5 shards for bert; None: data/samples,
    data/sequences for bert"""
    dali_threads: Annotated[int, Field(ge=1, le=256), BY_DALI] = 4
    """DALI's CPU threads per device"""
    dali_prefetch: Annotated[int, Field(ge=1, le=64), BY_DALI] = 2
    """batches that DALI prepares ahead"""
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
    outputs_dir: Annotated[
        str, Field(min_length=1), replace(RUN, verified=True, is_path=True)
    ] = "outputs"
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
    def data_folder(self) -> Path:
        """`data_dir` as an absolute path."""
        return resolved_path(self.data_dir)

    @property
    def devices(self) -> int:
        """Worker processes per node, one for each GPU if GPUs train."""
        return self.gpus if self.device == "gpu" else self.processes

    @property
    def ranks(self) -> int:
        """Worker processes of all nodes."""
        return self.nodes * self.devices

    @property
    def topology(self) -> str:
        """`NxG`: nodes x devices per node, written as the published tables write it."""
        return f"{self.nodes}x{self.devices}"

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

    name: Annotated[Literal["published", "quick"], replace(IGNORED, unset="auto")]
    """whose values it began with"""
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)]
    """steps dropped at the start of a repeat"""
    measured_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps in the window, after the warm-up"""
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
        """Steps of a repeat, warm-up included."""
        return self.warmup_steps + self.measured_steps

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
        `repeats` may be "auto"."""
        given = {field: value for field, value in overrides.items() if value is not None}
        if given.get("repeats") == "auto":
            given = AUTO | given | {"repeats": AUTO["repeats"]}
        return cls.model_validate({"name": name} | PROTOCOLS[name] | given)


PROTOCOLS: dict[str, dict[str, Any]] = {
    # Steps 1-20 dropped, 21-120 measured, 7 runs, median: the method that the FleetX
    # ResNet-50 and VGG-16 benchmark pages state.
    "published": {"warmup_steps": 20, "measured_steps": 100, "repeats": 7},
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
    """The words that a parameter may have; none for other types."""
    field, unset = (FIELDS | Config.model_fields)[name], ABOUT[name].unset
    kinds = (field.annotation, *get_args(field.annotation))
    words = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
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
                f"; {key}: {p['warmup_steps']} + {p['measured_steps']} steps x {p['repeats']}"
                for key, p in PROTOCOLS.items()
            )
        elif name in PROTOCOL_PARAMETERS and field.is_required():
            meaning += "; None: as the protocol has it"
        elif words:
            meaning += f" ({' | '.join(words)})"
        default = ABOUT[name].unset if field.is_required() else field.default
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
