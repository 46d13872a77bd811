"""Facts, limits and defaults of a framework, known without importing it."""

import os
import sys
from abc import ABC
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from perfkit.core.config import RunConfig
from perfkit.core.system.gpus import visible_gpus
from perfkit.core.system.software import Sources, find_version

RANK_VARIABLE = "PERFKIT_RANK"
MEETING_VARIABLE = "PERFKIT_MEETING"
"""Environment variables of ranks that are plain processes (ranks.py)."""
BLACKWELL = 10.0
"""First compute capability that builds for CUDA 12.6 lack."""
AFFINITY = "affinity"
"""GPU setting of every framework: each rank runs on the cores of its GPU's NUMA node."""


def visible_variable(device: str) -> str:
    """Return the environment variable that restricts a process to some devices of a type.

    For the types of its plugins (npu, mlu, gcu ...) and its XPU build, Paddle's launcher reads
    it and assigns each rank its own devices in FLAGS_selected_<type>s.
    """
    if device == "gpu":
        return "CUDA_VISIBLE_DEVICES"
    return f"{device.upper()}_VISIBLE_DEVICES"


class NodeRank(NamedTuple):
    """Position of a node in a run: its number, address and network interface, and `master`,
    the host:port where all nodes meet."""

    node: int = 0
    nodes: int = 1
    address: str = ""
    interface: str = ""
    master: str = ""

    def ranks(self, devices: int) -> range:
        """Return the ranks of this node when every node has `devices` devices."""
        first = self.node * devices
        return range(first, first + devices)

    @property
    def log_name(self) -> str:
        """Name of the log of the node's launcher."""
        return "launcher" if self.nodes == 1 else f"launcher-node{self.node}"


class GpuBuild(NamedTuple):
    """A build of a framework for GPUs, and how it is installed."""

    extra: str
    """perfkit's extra with the build and all that its workers import"""
    package: str
    """its name for pip"""
    package_index: str = ""
    """index of packages that has the build, if it is not on PyPI"""
    environment: str = ""
    """the checkout's file of a conda environment with the build, if it has one"""

    @property
    def install(self) -> str:
        """Command that installs the build, in the checkout."""
        if self.environment:
            return f"conda env create -f {self.environment}"
        return f"pip install -e '.[{self.extra}]'"


class Framework(ABC):
    """The facts of one framework. `perfkit.core.frameworks.<name>` has its subclass."""

    display_name: str
    """its name in texts"""
    colour: str
    """its colour in charts, distinguishable from the others' in greyscale too"""
    marker: str
    """matplotlib's marker of its points in charts"""
    module: str
    """its Python module"""
    package: str
    """its name for pip"""
    install: str
    """command that installs it, in the checkout"""
    download: str = ""
    """what that command downloads, if it is much"""
    constraints: str = "constraints.txt"
    """the checkout's file with tested versions of it and of other packages"""
    gpu_build: GpuBuild | None = None
    """its build for GPUs that perfkit has an extra for"""
    blackwell_build: GpuBuild | None = None
    """the same for GPUs from Blackwell on, if it is another one"""
    versions: ClassVar[Sources]
    """fact of the environment -> sources of its version; the framework's own first"""
    supports: ClassVar[Mapping[str, tuple[Any, ...]]]
    """parameter -> supported values; a parameter that is not listed may have any value"""
    cpu_precisions: tuple[str, ...]
    """precisions that it computes in on a CPU"""
    layout: str
    """default layout of images"""
    gpu_layouts: ClassVar[Mapping[str, str]] = {}
    """precision -> default layout of images on a GPU, if it is another one"""
    execution: str
    """default execution"""
    gpu_settings: ClassVar[Mapping[str, str]] = {}
    """environment variables of the workers on a GPU, unless they are set already"""
    gpu_fact: str = "cuda"
    """fact of the environment that only a build for GPUs has"""
    tuning: tuple[str, ...] = ()
    """settings for full speed on a GPU, which `disable_tuning` leaves at their defaults;
    docs/backends.md describes them"""
    rank_variable: str = ""
    """environment variable in which the launcher passes each rank's number; empty: it trains in
    a single process without a launcher"""
    runs_ahead: bool = False
    """whether calls return before their work is complete on a CPU too"""
    one_node_on_cpu: bool = False
    """whether its exchange of gradients between CPUs can't be bound to a node's address"""
    shards_on_cpu: bool = True
    """whether its sharding works on CPUs"""
    compiles_in_layers: bool = True
    """whether its sharding and recomputation work in a compiled graph"""
    log_pattern: str = ""
    """pattern for the files below the log folder to which the launcher writes the output of the
    node's rank {index}"""
    loader_threads: bool = False
    """whether its DataLoader uses threads instead of processes"""
    dali_plugin: str = ""
    """module of DALI whose iterator yields the framework's tensors on a GPU; empty if it trains
    on no GPU"""

    def launch_command(
        self,
        _config: RunConfig,
        _node: NodeRank,
        _log_folder: Path,
        _job: str,
        worker: list[str],
    ) -> list[str]:
        """Return the command that starts all ranks of a node. `worker` is the command of a
        rank, `job` a unique name of the run."""
        return worker

    def cpu_settings(self, _vendor: str, _threads: int) -> dict[str, str]:
        """Return the environment variables for full speed on a CPU of this vendor with this
        many threads per process; they must be set before the import."""
        return {}

    def other_devices(self, _interpreter: str) -> Mapping[str, int]:
        """Return type -> number of this machine's devices other than CPUs and GPUs that the
        framework sees; may start a process."""
        return {}

    def architectures(self, _interpreter: str) -> list[str]:
        """Return the GPU architectures that the build has machine code (`sm_90`) or PTX
        (`compute_90`) for; [] if they are unknown. May start a process. Raises
        InterpreterError."""
        return []

    def build_for(self, capabilities: Iterable[str]) -> GpuBuild | None:
        """Return the build for GPUs of these compute capabilities, such as "9.0"; None if
        perfkit has no extra with one."""
        if any(float(capability) >= BLACKWELL for capability in capabilities):
            return self.blackwell_build or self.gpu_build
        return self.gpu_build

    def preset_precision(self, _strategy: str) -> str | None:
        """Return the precision that a strategy sets; None if it sets none."""
        return None

    def takes(self, **values: Any) -> bool:
        """Return whether the framework supports these values of parameters."""
        return all(value in self.supports.get(name, (value,)) for name, value in values.items())

    def visible_devices(self, device: str, interpreter: str = sys.executable) -> list[str]:
        """Return the labels of this type's devices that its processes may use, in order; [] for
        `cpu`. Raises OSError if NVIDIA's driver fails."""
        if device == "cpu":
            return []
        if device == "gpu":
            return visible_gpus()
        count = self.other_devices(interpreter).get(device, 0)
        labels = os.environ.get(visible_variable(device), "")
        if count and labels not in ("", "all"):
            return [label.strip() for label in labels.split(",")]
        return [str(index) for index in range(count)]

    @property
    def several_processes(self) -> bool:
        """Whether the framework supports more than one rank."""
        return bool(self.rank_variable)

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts of the environment that the framework adds."""
        return tuple(self.versions)

    @property
    def version(self) -> str | None:
        """Installed version; None if this interpreter does not have the framework."""
        return find_version(*self.versions[self.facts[0]])
