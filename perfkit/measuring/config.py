"""The configuration of a measurement: the work and how it runs."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

from perfkit.measuring.about import (
    ACCELERATED,
    DEVICE,
    ON_CPU,
    RUN,
    STRICT,
    About,
    FrameworkName,
    LocalPath,
    about_of,
)
from perfkit.measuring.paths import interpreter_path
from perfkit.measuring.work import Work

LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$|^$"
HOSTS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
"""Names or addresses, comma-separated, without a leading dash, which would start an option."""
NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$|^$"
Launcher = Literal["local", "srun", "ssh"]


class Config(BaseModel):
    """The work, and how it runs, with every field set: None means not needed by the launcher
    (`hosts`), any (`port`) or the driver's (`python`)."""

    model_config = STRICT

    work: Work
    """what is trained: a built-in model, a script of the user's, or a command"""
    framework: FrameworkName
    """training framework; None: the one that the script imports"""
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
    """name of this node in a fleet; set by sweep --each-node; outside of Slurm, nothing
    compares it with the machine"""
    port: Annotated[int | None, Field(ge=1024, le=65535), RUN] = None
    """TCP port of the first node at which the workers of several nodes meet; None: any free
    port"""
    cpu_tuning: Annotated[bool, About(verified=True)] = True
    """set threads and MKL path on a CPU; False: the framework's defaults"""
    profile: Annotated[bool, RUN] = False
    """trace some steps of one more run by the framework's profiler; no number is taken from
    it"""
    python: Annotated[
        str | None, Field(min_length=1), About(compared="ignore", is_path=True)
    ] = None
    """interpreter of the workers; None: the driver's"""
    timeout: Annotated[int, Field(ge=1, le=7 * 24 * 3600), replace(RUN, verified=True)] = 1800
    """limit for a repeat, and for the wait for nodes, seconds"""
    outputs_dir: Annotated[LocalPath, replace(RUN, verified=True, is_path=True)] = "outputs"
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
    def device_count(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.devices

    @property
    def ranks(self) -> int:
        """Processes that perfkit starts on all nodes, one per device; a command alone."""
        return 1 if self.work.launches_itself else self.device_count

    @property
    def topology(self) -> str:
        """`NxG`: nodes x devices per node, as in the published tables."""
        return f"{self.nodes}x{self.devices}"

    @property
    def values(self) -> dict[str, Any]:
        """The values of all fields by name, those of the work among them."""
        return self.work.model_dump() | self.model_dump(exclude={"work"})

    @property
    def identity(self) -> dict[str, Any]:
        """The values that identify a measurement."""
        fields = type(self.work).model_fields | type(self).model_fields
        return {
            name: value
            for name, value in self.values.items()
            if about_of(fields[name]).identifies
        }

    def changed(self, **values: Any) -> Self:
        """Return the configuration with other values of its fields, or of the work's."""
        of_work = {name: values[name] for name in values.keys() & type(self.work).model_fields}
        of_run = {name: value for name, value in values.items() if name not in of_work}
        work = self.work.model_copy(update=of_work)
        return self.model_copy(update=of_run | {"work": work})
