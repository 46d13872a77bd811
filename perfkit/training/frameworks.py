"""What must be known of a framework without importing it: names, supported values, defaults,
versions, environment variables and the command that starts its ranks."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

AFFINITY = "affinity"
"""GPU setting of every framework: each rank runs on the cores of its GPU's NUMA node."""
BLACKWELL = 10.0
"""First compute capability that builds for CUDA 12.6 lack."""
CUDA_VERSIONS = tuple(str(major) for major in range(11, 20))
"""CUDA versions at the end of NVIDIA's package names, as in nvidia-cudnn-cu12."""
HALF_PRECISIONS = ("amp", "pure_fp16", "bf16")
MEETING_VARIABLE = "PERFKIT_MEETING"
"""Environment variable with the address of rank 0, at which plain processes meet."""
WITHOUT_DUMPS = """
unset PADDLE_BACKUP_ENV_PATH
(cd "$0" && rm -f envlog.* backup_env.* *.*.log)
exec "$@"
"""
"""Shell script that removes the dumps of the environment by Paddle's launcher, then runs the
rank. The dumps include secrets, and a rank would read variables that it lacks from them."""


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


class Ranks(NamedTuple):
    """The ranks of a node as a launcher starts them. `command` is the command of each, `labels`
    those of their accelerators (none on a CPU), `job` a unique name of the run."""

    command: Sequence[str]
    interpreter: str
    devices: int
    labels: Sequence[str]
    place: NodeRank
    log_folder: Path
    job: str


class GpuBuild(NamedTuple):
    """A build of a framework for GPUs, and how it is installed."""

    extra: str
    """perfkit's extra with the build and all that its ranks import"""
    environment: str = ""
    """the checkout's file of a conda environment with the build, if it has one"""

    @property
    def install(self) -> str:
        """Command that installs the build, in the checkout."""
        if self.environment:
            return f"conda env create -f {self.environment}"
        return f"pip install -e '.[{self.extra}]'"


@dataclass(frozen=True, kw_only=True)
class Framework:
    """The facts of a framework. Its name is also that of its module."""

    name: str
    display_name: str
    """its name in texts"""
    install: str
    """command that installs it, in the checkout"""
    download: str = ""
    """what that command downloads, if it is much"""
    gpu_build: GpuBuild | None = None
    """its build for GPUs that perfkit has an extra for"""
    blackwell_build: GpuBuild | None = None
    """the same for GPUs from Blackwell on, if it is another one"""
    versions: Mapping[str, tuple[str, ...]]
    """fact of the environment -> sources of its version (measuring/system/software.py); the
    framework's own first"""
    gpu_fact: str = "cuda"
    """fact of the environment that only a build for GPUs has"""
    supports: Mapping[str, tuple[Any, ...]]
    """parameter -> supported values; a parameter that is not listed may have any value"""
    cpu_precisions: tuple[str, ...]
    """precisions that it computes in on a CPU"""
    execution: str = "dynamic"
    """default execution"""
    threads_variable: str = "OMP_NUM_THREADS"
    """environment variable with the number of threads of a process"""
    amd_settings: Mapping[str, str] = field(default_factory=dict)
    """environment variables for full speed on AMD's processors"""
    gpu_settings: Mapping[str, str] = field(default_factory=dict)
    """environment variables of ranks on a GPU, unless they are set already"""
    tuning: tuple[str, ...] = ()
    """settings for full speed on a GPU, which `disable_tuning` leaves at their defaults;
    docs/backends.md describes them"""
    launch: Callable[[Ranks], list[str]] | None = None
    """returns the command that starts several ranks; None: it trains in one process"""
    rank_variables: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """a process's place among all ranks and among those of its node -> environment variable in
    which the launcher tells it, and the value without a launcher"""
    log_pattern: str = ""
    """pattern for the files below the log folder to which the launcher writes the output of the
    node's rank {index}"""
    runs_ahead: bool = False
    """whether calls return before their work is complete on a CPU too"""
    one_node_on_cpu: bool = False
    """whether its exchange of gradients between CPUs can't be bound to a node's address"""
    shards_on_cpu: bool = True
    """whether its sharding works on CPUs"""
    compiles_in_layers: bool = True
    """whether its sharding and recomputation work in a compiled graph"""
    loader_threads: bool = False
    """whether its DataLoader uses threads instead of processes"""

    def cpu_settings(self, vendor: str, threads: int) -> dict[str, str]:
        """Return the environment variables for full speed on a CPU of this vendor with this
        many threads per process; they must be set before the import."""
        settings = {self.threads_variable: str(threads)}
        if vendor == "AuthenticAMD":
            settings |= self.amd_settings
        return settings

    def build_for(self, capabilities: Iterable[str]) -> GpuBuild | None:
        """Return the build for GPUs of these compute capabilities, such as "9.0"; None if
        perfkit has no extra with one."""
        if any(float(capability) >= BLACKWELL for capability in capabilities):
            return self.blackwell_build or self.gpu_build
        return self.gpu_build

    def takes(self, **values: Any) -> bool:
        """Return whether the framework supports these values of parameters."""
        return all(value in self.supports.get(name, (value,)) for name, value in values.items())

    @property
    def rank_variable(self) -> str:
        """Environment variable with a rank's number; empty if there is one rank only."""
        variable, _alone = self.rank_variables.get("rank", ("", ""))
        return variable

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts of the environment that the framework adds."""
        return tuple(self.versions)


def default_layout(framework: str, device: str, precision: str) -> str:
    """Return the default layout of images. Tensor cores require NHWC; for fp32, cuDNN's NCHW
    kernels are faster in Paddle. MXNet's operators on a CPU know NCHW only."""
    if framework == "mxnet":
        return "NCHW"
    if framework == "paddle" and (device != "gpu" or precision not in HALF_PRECISIONS):
        return "NCHW"
    return "NHWC"


def paddle_launch(ranks: Ranks) -> list[str]:
    place, log_folder = ranks.place, str(ranks.log_folder)
    launch = [ranks.interpreter, "-m", "paddle.distributed.launch"]
    # enable_gpu_log would run nvidia-smi every few seconds, also inside the window.
    launch += ["--log_dir", log_folder, "--job_id", ranks.job, "--enable_gpu_log", "False"]
    if place.nodes > 1:
        launch += ["--nnodes", str(place.nodes), "--rank", str(place.node)]
        launch += ["--master", place.master, "--host", place.address]
    if ranks.labels:
        launch += ["--devices", ",".join(ranks.labels[: ranks.devices])]
    else:
        # --devices would fail on a CPU ("substring not found").
        launch += ["--nproc_per_node", str(ranks.devices)]
    return [*launch, "/bin/sh", "-c", WITHOUT_DUMPS, log_folder, *ranks.command]


def torchrun(ranks: Ranks) -> list[str]:
    place = ranks.place
    launch = [ranks.interpreter, "-m", "torch.distributed.run", "--no-python"]
    launch += ["--log-dir", str(ranks.log_folder), "--redirects", "3", "--max-restarts", "0"]
    launch += ["--nproc-per-node", str(ranks.devices)]
    if place.nodes == 1:
        return [*launch, "--standalone", *ranks.command]
    address, port = place.master.rsplit(":", 1)
    launch += ["--nnodes", str(place.nodes), "--node-rank", str(place.node)]
    launch += ["--master-addr", address, "--master-port", port, "--rdzv-id", ranks.job]
    return [*launch, "--local-addr", place.address, *ranks.command]


def plain_processes(ranks: Ranks) -> list[str]:
    """Return the command of perfkit.training.jax.launch."""
    place = ranks.place
    numbers = place.ranks(ranks.devices)
    # The ranks' interpreter may lack perfkit's packages, if they run a script.
    launch = [sys.executable, "-P", "-m", "perfkit.training.jax.launch"]
    launch += [str(ranks.log_folder), str(numbers.start), str(ranks.devices)]
    all_ranks = place.nodes * ranks.devices
    return [*launch, str(all_ranks), place.master or "-", *ranks.command]


PADDLE = Framework(
    name="paddle",
    display_name="Paddle",
    install="make report",
    gpu_build=GpuBuild("gpu-cu12", "environment.yml"),
    blackwell_build=GpuBuild("gpu-cu13", "environment-cu13.yml"),
    versions={
        "paddle": ("paddle/version/__init__.py:full_version",),
        "paddle_commit": ("paddle/version/__init__.py:commit",),
        "cuda": ("paddle/version/__init__.py:cuda_version",),
        "cudnn": ("paddle/version/__init__.py:cudnn_version",),
        "nccl": ("paddle/version/__init__.py:nccl_version",),
    },
    supports={"sharding": ("none", "full")},
    cpu_precisions=("fp32",),
    # Its bundled MKL takes a slow path on AMD processors, and without the variable of threads
    # the CPU wheel runs on one.
    amd_settings={"MKL_DEBUG_CPU_TYPE": "5"},
    tuning=("cudnn_search", "persistent_batch_norm", "conv_workspace", "fused_optimizer"),
    launch=paddle_launch,
    rank_variables={
        "rank": ("PADDLE_TRAINER_ID", "0"),
        "ranks": ("PADDLE_TRAINERS_NUM", "1"),
        "local_rank": ("PADDLE_RANK_IN_NODE", "0"),
        "devices": ("PADDLE_LOCAL_SIZE", "1"),
    },
    log_pattern="workerlog.{index}",
    shards_on_cpu=False,
    compiles_in_layers=False,
)
TORCH = Framework(
    name="torch",
    display_name="PyTorch",
    install="pip install -c constraints.txt -e '.[torch]'",
    # 2.13.0 for Python 3.11 on x86-64, from PyPI.
    download="up to 2.7 GB, since PyPI's build for Linux has CUDA's libraries",
    gpu_build=GpuBuild("torch-cu12"),
    blackwell_build=GpuBuild("torch-cu13"),
    versions={
        "torch": ("torch/version.py:__version__",),
        "torch_commit": ("torch/version.py:git_version",),
        "cuda": ("torch/version.py:cuda",),
        "cudnn": tuple(f"nvidia-cudnn-cu{cuda}" for cuda in CUDA_VERSIONS),
        "nccl": tuple(f"nvidia-nccl-cu{cuda}" for cuda in CUDA_VERSIONS),
    },
    supports={
        "device": ("cpu", "gpu"),
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        "strategy": ("none",),
    },
    cpu_precisions=("fp32", "amp", "bf16"),
    tuning=("cudnn_search", "fused_attention", "fused_optimizer"),
    # By default, torchrun limits each of several processes to one thread: OMP_NUM_THREADS.
    launch=torchrun,
    rank_variables={
        "rank": ("RANK", "0"),
        "ranks": ("WORLD_SIZE", "1"),
        "local_rank": ("LOCAL_RANK", "0"),
        "devices": ("LOCAL_WORLD_SIZE", "1"),
    },
    log_pattern="*/attempt_0/{index}/std*.log",
)
JAX = Framework(
    name="jax",
    display_name="JAX",
    install="pip install -c constraints.txt -e '.[jax]'",
    gpu_build=GpuBuild("jax-cu12"),
    versions={
        "jax": ("jax",),
        "jaxlib": ("jaxlib",),
        "jax_cuda_plugin": tuple(f"jax-cuda{cuda}-plugin" for cuda in CUDA_VERSIONS),
        "cudnn": tuple(f"nvidia-cudnn-cu{cuda}" for cuda in CUDA_VERSIONS),
        "nccl": tuple(f"nvidia-nccl-cu{cuda}" for cuda in CUDA_VERSIONS),
    },
    gpu_fact="jax_cuda_plugin",
    supports={
        "model": ("resnet50", "bert", "gpt", "llama"),
        "precision": ("fp32", "bf16"),
        "execution": ("static",),
        "optimizer": ("momentum", "adamw"),
        "input": ("dali", "synthetic"),
        "strategy": ("none",),
        "device": ("cpu", "gpu"),
    },
    cpu_precisions=("fp32", "bf16"),
    execution="static",
    # By default, each process has a thread for every core.
    threads_variable="NPROC",
    # Otherwise JAX takes 75 % of a GPU's memory at once, and NVML's reading says nothing.
    gpu_settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    tuning=("fused_attention",),
    launch=plain_processes,
    rank_variables={
        "rank": ("PERFKIT_RANK", "0"),
        "ranks": ("PERFKIT_RANKS", "1"),
        "local_rank": ("PERFKIT_LOCAL_RANK", "0"),
        "devices": ("PERFKIT_DEVICES", "1"),
    },
    log_pattern="rank{index}.log",
    runs_ahead=True,
    # gloo takes the address of the machine's own name, often the loopback, and JAX has no
    # setting for it.
    one_node_on_cpu=True,
)
TENSORFLOW = Framework(
    name="tensorflow",
    display_name="TensorFlow",
    install="pip install -c constraints.txt -e '.[tensorflow]'",
    versions={"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",)},
    supports={
        "model": ("resnet50", "bert"),
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        # TensorFlow's convolution gradients on a CPU support no other layout.
        "layout": ("NHWC",),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32", "amp", "bf16"),
    threads_variable="TF_NUM_INTRAOP_THREADS",
    loader_threads=True,
)
MXNET = Framework(
    name="mxnet",
    display_name="MXNet",
    # Its last wheel requires NumPy < 1.24, and therefore an environment of its own.
    install="make peers; to use it: -p python .venv-mxnet/bin/python",
    versions={"mxnet": ("mxnet",)},
    supports={
        "model": ("resnet50",),
        "precision": ("fp32",),
        # A hybridized block: a compiled graph with static memory.
        "execution": ("static",),
        "optimizer": ("momentum",),
        "input": ("dataloader", "synthetic"),
        # Its CPU operators support no other layout.
        "layout": ("NCHW",),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32",),
    execution="static",
)
FRAMEWORKS = {each.name: each for each in (PADDLE, TORCH, JAX, TENSORFLOW, MXNET)}
DISPLAY_NAMES = {name: framework.display_name for name, framework in FRAMEWORKS.items()}
"""Name of a framework in parameters -> its name in texts."""
