"""Paddle."""

import re
from functools import cache
from pathlib import Path
from typing import ClassVar

from perfkit.core.config import RunConfig
from perfkit.core.frameworks.facts import Framework, GpuBuild, NodeRank
from perfkit.core.system.software import InterpreterError, ask, read_software
from perfkit.training.paddle.presets import precision_of

WITHOUT_DUMPS = """
unset PADDLE_BACKUP_ENV_PATH
(cd "$0" && rm -f envlog.* backup_env.* *.*.log)
exec "$@"
"""
"""Shell script that removes the launcher's dumps of the environment, then runs the worker. The
dumps include secrets, and a worker would read variables that it lacks from them."""
COMPILED_ARCHITECTURES = ("paddle/version/__init__.py:compiled_cuda_archs",)
COUNT_DEVICES = """
import json
import paddle
core = paddle.base.core
types = core.get_all_custom_device_type()
counts = {kind: core.get_custom_device_count(kind) for kind in types}
if paddle.is_compiled_with_xpu():
    counts["xpu"] = core.get_xpu_device_count()
print(json.dumps(counts))
"""


PACKAGES = "https://www.paddlepaddle.org.cn/packages/stable/"
"""Folder of Paddle's own indexes of packages, one for each version of CUDA."""


@cache
def counted_devices(interpreter: str) -> dict[str, int]:
    """Return type -> number of devices of Paddle's plugins or XPU build, queried in a separate
    process; {} if Paddle cannot be queried."""
    try:
        return dict(ask(interpreter, COUNT_DEVICES))
    except InterpreterError:
        return {}


class Paddle(Framework):
    display_name = "Paddle"
    colour = "#1f5fbf"
    marker = "o"
    module = "paddle"
    package = "paddlepaddle"
    install = "make report"
    supports: ClassVar = {"sharding": ("none", "full")}
    shards_on_cpu = False
    compiles_in_layers = False
    cpu_precisions = ("fp32",)
    layout = "NCHW"
    # Tensor cores require NHWC; for fp32, cuDNN's NCHW kernels are faster.
    gpu_layouts = dict.fromkeys(("amp", "pure_fp16", "bf16"), "NHWC")
    tuning = ("cudnn_search", "persistent_batch_norm", "conv_workspace", "fused_optimizer")
    execution = "dynamic"
    rank_variable = "PADDLE_TRAINER_ID"
    log_pattern = "workerlog.{index}"
    dali_plugin = "nvidia.dali.plugin.paddle"
    gpu_build = GpuBuild(
        extra="gpu-cu12",
        package="paddlepaddle-gpu",
        package_index=f"{PACKAGES}cu126/",
        environment="environment.yml",
    )
    blackwell_build = gpu_build._replace(
        extra="gpu-cu13",
        package_index=f"{PACKAGES}cu130/",
        environment="environment-cu13.yml",
    )
    versions: ClassVar = {
        "paddle": ("paddle/version/__init__.py:full_version",),
        "paddle_commit": ("paddle/version/__init__.py:commit",),
        "cuda": ("paddle/version/__init__.py:cuda_version",),
        "cudnn": ("paddle/version/__init__.py:cudnn_version",),
        "nccl": ("paddle/version/__init__.py:nccl_version",),
    }

    def launch_command(
        self, config: RunConfig, node: NodeRank, log_folder: Path, job: str, worker: list[str]
    ) -> list[str]:
        """Return the paddle.distributed.launch command; see Framework."""
        launch = [config.interpreter, "-m", "paddle.distributed.launch"]
        # enable_gpu_log would run nvidia-smi every few seconds, also inside the window.
        launch += ["--log_dir", str(log_folder), "--job_id", job, "--enable_gpu_log", "False"]
        if node.nodes > 1:
            launch += ["--nnodes", str(node.nodes), "--rank", str(node.node)]
            launch += ["--master", node.master, "--host", node.address]
        if config.accelerated:
            labels = self.visible_devices(config.device, config.interpreter)
            launch += ["--devices", ",".join(labels[: config.devices])]
        else:
            # --devices would fail on a CPU ("substring not found").
            launch += ["--nproc_per_node", str(config.devices)]
        return [*launch, "/bin/sh", "-c", WITHOUT_DUMPS, str(log_folder), *worker]

    def cpu_settings(self, vendor: str, threads: int) -> dict[str, str]:
        """Without OMP_NUM_THREADS the CPU wheel runs on one thread; without MKL_DEBUG_CPU_TYPE
        its bundled MKL takes a slow path on AMD processors."""
        settings = {"OMP_NUM_THREADS": str(threads)}
        if vendor == "AuthenticAMD":
            settings["MKL_DEBUG_CPU_TYPE"] = "5"
        return settings

    def other_devices(self, interpreter: str) -> dict[str, int]:
        return counted_devices(interpreter)

    def architectures(self, interpreter: str) -> list[str]:
        """See Framework: builds from 3.1 on list those with machine code; none has PTX."""
        software = read_software(interpreter, {"architectures": COMPILED_ARCHITECTURES})
        numbers = re.findall(r"\d+", software.versions["architectures"] or "")
        return [f"sm_{number}" for number in numbers]

    def preset_precision(self, strategy: str) -> str | None:
        return precision_of(strategy)


FRAMEWORK = Paddle()
