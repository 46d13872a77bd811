"""What to run and how to measure it, as frozen models. Imports nothing of perfkit."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

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


ModelName = Literal["resnet50", "vgg16", "bert"]
FrameworkName = Literal["paddle", "torch", "jax", "tensorflow", "mxnet", "oneflow"]


class Config(BaseModel):
    """A configuration: everything that defines the work. Field names are notebook parameters.

    `None` and `"auto"` are left open by the user and filled in by `request.resolve`; the
    properties need that to have happened.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: ModelName = Field(description="the model to train")
    framework: FrameworkName = Field(
        "paddle",
        description="the framework that trains; of imported logs, the last three too",
    )
    precision: Literal["fp32", "amp", "pure_fp16", "bf16", "auto"] = Field(
        "fp32",
        description="number format of the training: amp is O1 and pure_fp16 O2 with float16, "
        "bf16 is O1 with bfloat16; auto leaves it to strategy=fleetx-auto",
    )
    tf32: bool = Field(False, description="let a GPU's tensor cores round fp32 factors to TF32")
    execution: Literal["dynamic", "static"] | None = Field(
        None,
        description="dynamic graph, or compiled by to_static, torch.compile or jit; None: "
        "dynamic, static for jax",
    )
    strategy: Literal[
        "none",
        "fleetx-fp32",
        "fleetx-amp",
        "fleetx-auto",
        "fleetx-vgg16-fp32",
        "fleetx-vgg16-amp",
    ] = Field("none", description="preset of distributed-training options")
    optimizer: Literal["momentum", "adamw", "lamb"] | None = Field(
        None, description="None: momentum for images, adamw for bert; lamb is for bert too"
    )
    layout: Literal["NCHW", "NHWC"] | None = Field(
        None,
        description="memory layout of images; None: NCHW, NHWC for torch and jax",
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="samples per device and micro-batch; None: chosen by model and device",
    )
    accumulate: int = Field(1, ge=1, le=65536, description="micro-batches per optimizer step")
    image_size: int | None = Field(
        None, ge=32, le=1024, description="height and width of the images, pixels; None: 224"
    )
    sequence_length: int | None = Field(
        None, ge=16, le=512, description="tokens per sequence of bert; None: 128"
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="of the weights and, with DALI, of the images' order and crops",
    )

    device: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="what trains; auto: the GPUs, or the CPU where there are none"
    )
    gpus: int | None = Field(
        None,
        ge=0,
        le=64,
        description="GPUs per node; None: all visible, or the CPU where there are none",
    )
    processes: int | None = Field(
        None, ge=1, le=256, description="worker processes per node on the CPU; None: 1"
    )
    nodes: int = Field(1, ge=1, le=512, description="number of nodes")
    launcher: Literal["local", "srun", "mpirun", "manual"] | None = Field(
        None,
        description="what starts the workers: srun in a Slurm allocation, mpirun on hosts over "
        "ssh, manual: you, by this same command on every host; None: local for one node, srun "
        "for several",
    )
    hosts: str | None = Field(
        None,
        pattern=HOSTS,
        description="names or addresses of the nodes, comma-separated, this one first; for "
        "mpirun and manual",
    )
    port: int | None = Field(
        None,
        ge=1024,
        le=65534,
        description="TCP port of the first node, where the nodes meet; the workers use the "
        "next port; None: any free port, 29400 for manual",
    )
    cpu_tuning: bool = Field(
        True,
        description="set threads and MKL path on a CPU; False: the framework as installed",
    )

    input: Literal["dali", "dataloader", "synthetic"] | None = Field(
        None,
        description="where batches come from; None: dali for images, dataloader for bert",
    )
    data_dir: str | None = Field(
        None,
        min_length=1,
        description="folder with train/ and train_list.txt, or with HDF5 shards for bert; "
        "None: data/samples, data/sequences for bert",
    )
    dali_threads: int = Field(4, ge=1, le=256, description="DALI's CPU threads per device")
    dali_prefetch: int = Field(2, ge=1, le=64, description="batches that DALI prepares ahead")
    dali_crop_attempts: int = Field(
        100, ge=1, le=1000, description="tries for a random crop of wanted area and aspect"
    )
    dali_device_padding: int = Field(
        211_025_920, ge=0, le=2**33, description="nvJPEG device memory set aside, bytes (GPU)"
    )
    dali_host_padding: int = Field(
        140_544_512, ge=0, le=2**33, description="nvJPEG pinned memory set aside, bytes (GPU)"
    )
    # Not 0: without processes of its own, Paddle's DataLoader waits for ever after an error.
    dataloader_workers: int = Field(
        4, ge=1, le=256, description="processes of the framework's DataLoader"
    )

    timeout: int = Field(
        1800,
        ge=1,
        le=7 * 24 * 3600,
        description="seconds after which a repeat is ended, and a missing node is given up",
    )
    outputs_dir: str = Field(
        "outputs", min_length=1, description="folder that receives the results"
    )
    label: str = Field(
        "", pattern=LABEL, description="a name of your own; a new one starts a new measurement"
    )

    @property
    def samples_per_step(self) -> int:
        """Samples per optimizer step of one rank."""
        assert self.batch_size is not None
        return self.batch_size * self.accumulate

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step of all ranks."""
        return self.samples_per_step * self.ranks

    @property
    def host_list(self) -> list[str]:
        """The names in `hosts`; none where it is not for the launcher."""
        return self.hosts.split(",") if self.hosts else []

    @property
    def data_folder(self) -> Path:
        """`data_dir` as an absolute path."""
        assert self.data_dir is not None
        return resolved_path(self.data_dir)

    @property
    def devices(self) -> int:
        """Worker processes per node: one per GPU, or `processes` on the CPU."""
        return (self.gpus if self.device == "gpu" else self.processes) or 1

    @property
    def ranks(self) -> int:
        """Worker processes of all nodes."""
        return self.nodes * self.devices

    @property
    def topology(self) -> str:
        """`NxG`: nodes x devices per node, written as the published tables write it."""
        return f"{self.nodes}x{self.devices}"


FEWEST_TO_END = 7
"""The fewest repeats whose range is an interval of 98 % for the median (results/schema.py)."""


class Protocol(BaseModel):
    """How it is measured. A step is one optimizer step; a repeat, fresh worker processes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Literal["published", "quick"] = Field(description="whose values it began with")
    warmup_steps: int = Field(
        ge=0, le=10**6, description="steps dropped at the start of a repeat"
    )
    measured_steps: int = Field(
        ge=1, le=10**6, description="steps in the window, after the warm-up"
    )
    repeats: int = Field(
        ge=1,
        le=1000,
        description="fresh runs of the workers; auto: as many as interval_target needs",
    )
    interval_target: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="end early, once the interval is narrower than this share of the median; "
        "None: make all repeats, for repeats=auto 0.02",
    )
    budget: int | None = Field(
        None,
        ge=1,
        le=30 * 24 * 3600,
        description="with interval_target, begin no repeat after so many seconds of measuring; "
        "None: no limit, for repeats=auto 3600",
    )
    statistic: Literal["median"] = Field(
        "median", description="what the number is of the repeats' throughputs"
    )

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

PATHS = ("data_dir", "outputs_dir")
"""The parameters that are folders; a relative one starts at ROOT."""
PROTOCOL_PARAMETERS = (
    "protocol",
    "warmup_steps",
    "measured_steps",
    "repeats",
    "interval_target",
    "budget",
)


@cache
def parameters() -> dict[str, tuple[Any, str]]:
    """Every notebook parameter: name -> (default, meaning)."""
    known = {
        name: (field.default, _meaning(field))
        for name, field in Config.model_fields.items()
        if name != "model"
    }
    summary = "; ".join(
        f"{name}: {p['warmup_steps']} + {p['measured_steps']} steps x {p['repeats']}"
        for name, p in PROTOCOLS.items()
    )
    known["protocol"] = ("auto", f"auto: published on a GPU, quick on the CPU; {summary}")
    for name in PROTOCOL_PARAMETERS[1:]:
        field = Protocol.model_fields[name]
        usual = "" if field.default is None else "; None: as the protocol has it"
        known[name] = (None, f"{field.description}{usual}")
    return known


def run_command(model: str, values: dict[str, Any]) -> list[str]:
    """The words of the `perfkit run` that measures `model` with these parameters."""
    options = [word for name, value in values.items() for word in ("-p", name, str(value))]
    return ["perfkit", "run", model, *options]


def _meaning(field: Any) -> str:
    """A field's description, with the words that it may have."""
    words = [word for word in choices(field.annotation) if isinstance(word, str)]
    return f"{field.description} ({' | '.join(words)})" if words else str(field.description)


def choices(annotation: Any) -> tuple[Any, ...]:
    """The words of a Literal, also of one that may be None; nothing for other types."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((get_args(p) for p in get_args(annotation) if get_origin(p) is Literal), ())


def parameter_values(config: Config, protocol: Protocol) -> dict[str, Any]:
    """The values of all notebook parameters, by name, that stand for these two."""
    values = config.model_dump() | protocol.model_dump() | {"protocol": protocol.name}
    return {name: values[name] for name in parameters()}
