"""Paddle: a training in `backend.py`, its networks, distributed strategies of published suites
in `presets.py`, and what becomes of their options in `strategy.py`."""

from functools import cache
from pathlib import Path

from perfkit.config import Config
from perfkit.frameworks.base import Framework, NodeRank
from perfkit.system.software import InterpreterError, ask

TUNING_FLAGS: dict[str, tuple[str, int | bool]] = {
    "cudnn_search": ("FLAGS_cudnn_exhaustive_search", True),
    "persistent_batch_norm": ("FLAGS_cudnn_batchnorm_spatial_persistent", True),
    "conv_workspace": ("FLAGS_conv_workspace_size_limit", 4096),
}
"""Setting on a GPU -> Paddle's flag, and the value that NVIDIA's DeepLearningExamples give it;
the workspace of a convolution is in MB."""
WITHOUT_DUMPS = """
unset PADDLE_BACKUP_ENV_PATH
(cd "$0" && rm -f envlog.* backup_env.* *.*.log)
exec "$@"
"""
"""A shell script that runs a worker once it has removed what the launcher has written about the
environment, secrets included; a worker would look up there what its own does not have."""
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


def launch_command(
    config: Config, node: NodeRank, log_folder: Path, job: str, worker: list[str]
) -> list[str]:
    """The command of paddle.distributed.launch."""
    launch = [config.interpreter, "-m", "paddle.distributed.launch"]
    # Without the last, it asks nvidia-smi every few seconds, also inside the window.
    launch += ["--log_dir", str(log_folder), "--job_id", job, "--enable_gpu_log", "False"]
    if node.nodes > 1:
        launch += ["--nnodes", str(node.nodes), "--rank", str(node.node)]
        launch += ["--master", node.master, "--host", node.address]
    if config.accelerated:
        labels = FRAMEWORK.visible_devices(config.device, config.interpreter)
        launch += ["--devices", ",".join(labels[: config.devices])]
    else:
        # --devices would fail on a CPU ("substring not found").
        launch += ["--nproc_per_node", str(config.devices)]
    return [*launch, "/bin/sh", "-c", WITHOUT_DUMPS, str(log_folder), *worker]


@cache
def other_devices(interpreter: str) -> dict[str, int]:
    """Type -> number of the devices of Paddle's plugins or XPU build, as Paddle says in a
    process of its own; none where it can't be asked."""
    try:
        return dict(ask(interpreter, COUNT_DEVICES))
    except InterpreterError:
        return {}


def cpu_settings(vendor: str, threads: int) -> dict[str, str]:
    """Without OMP_NUM_THREADS the CPU wheel runs on one thread; without MKL_DEBUG_CPU_TYPE its
    bundled MKL takes a slow path on AMD processors."""
    settings = {"OMP_NUM_THREADS": str(threads)}
    if vendor == "AuthenticAMD":
        settings["MKL_DEBUG_CPU_TYPE"] = "5"
    return settings


FRAMEWORK = Framework(
    name="Paddle",
    module="paddle",
    extra="cpu",
    supports={},
    cpu_precisions=("fp32",),
    layout="NCHW",
    # Tensor cores take no other; of fp32, cuDNN has the faster kernels for NCHW.
    gpu_layouts=dict.fromkeys(("amp", "pure_fp16", "bf16"), "NHWC"),
    tuning=(*TUNING_FLAGS, "fused_optimizer"),
    execution="dynamic",
    launch_command=launch_command,
    rank_variable="PADDLE_TRAINER_ID",
    log_pattern="workerlog.{index}",
    cpu_settings=cpu_settings,
    other_devices=other_devices,
    versions={
        "paddle": ("paddle/version/__init__.py:full_version",),
        "paddle_commit": ("paddle/version/__init__.py:commit",),
        "cuda": ("paddle/version/__init__.py:cuda_version",),
        "cudnn": ("paddle/version/__init__.py:cudnn_version",),
        "nccl": ("paddle/version/__init__.py:nccl_version",),
    },
)
