"""Starts the workers of one repeat and sees to it that they all end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from perfkit.config import Config, portable
from perfkit.environment import cpu_vendor
from perfkit.gpus import visible_gpus


def cpu_settings(config: Config, vendor: str, cores: int) -> dict[str, str]:
    """The variables that make Paddle fast on a CPU; they act only before its import.

    Without OMP_NUM_THREADS the CPU wheel runs on one thread; without MKL_DEBUG_CPU_TYPE its
    bundled MKL takes a slow path on AMD processors.
    """
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    settings = {"OMP_NUM_THREADS": str(max(1, cores // config.devices))}
    if vendor == "AuthenticAMD":
        settings["MKL_DEBUG_CPU_TYPE"] = "5"
    return settings


def worker_environment(config: Config) -> dict[str, str]:
    """The driver's environment with the CPU settings in it."""
    settings = cpu_settings(config, cpu_vendor(), len(os.sched_getaffinity(0)))
    if config.device == "gpu":
        # The launcher looks labels up in this list, and does not strip blanks from it.
        settings["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus())
    return os.environ | settings | {"PYTHONUNBUFFERED": "1"}


def launcher_command(config: Config, log_dir: Path, job: str, worker: list[str]) -> list[str]:
    """paddle.distributed.launch for one node; `worker` is the command of every rank."""
    launch = [sys.executable, "-m", "paddle.distributed.launch"]
    # Without the last, it asks nvidia-smi every few seconds, also inside the window.
    launch += ["--log_dir", str(log_dir), "--job_id", job, "--enable_gpu_log", "False"]
    if config.device == "gpu":
        launch += ["--devices", ",".join(visible_gpus()[: config.devices])]
    else:
        # --devices would fail on a CPU ("substring not found").
        launch += ["--nproc_per_node", str(config.devices)]
    return launch + worker


class Workers:
    """The processes of one repeat; none of them outlives the `with` block, or the driver.

    The launcher's log folder is a temporary one: besides the workers' logs it dumps the whole
    environment, which must not be published. `collect_logs` takes the logs alone. If the
    driver is killed, the supervisor removes the folder.
    """

    def __init__(self, config: Config, folder: Path, repeat: int) -> None:
        self.config = config
        self.scratch = Path(tempfile.mkdtemp(prefix="perfkit-"))
        self.supervisor_log = (self.scratch / "supervisor.log").open("wb")
        worker = [sys.executable, "-m", "perfkit.worker", str(folder), str(repeat)]
        command = launcher_command(config, self.scratch, f"{folder.name}-{repeat}", worker)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perfkit.supervisor", str(self.scratch), *command],
            stdin=subprocess.PIPE,
            stdout=self.supervisor_log,
            stderr=subprocess.STDOUT,
            env=worker_environment(config),
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.supervisor_log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def wait(self, seconds: float) -> int | None:
        """The exit status once all processes have ended; None if not within `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Kill what is left: closing the pipe tells the supervisor, which kills and waits."""
        assert self.process.stdin
        self.process.stdin.close()
        if self.wait(10) is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()

    def collect_logs(self, logs: Path, repeat: int) -> str:
        """Move the workers' logs to `logs`, home and checkout paths taken out.

        Returns the last lines of all of them, for a failure's message.
        """
        logs.mkdir(exist_ok=True)
        last = []
        sources = {f"{repeat}-launcher.log": self.scratch / "supervisor.log"} | {
            f"{repeat}-rank{rank}.log": self.scratch / f"workerlog.{rank}"
            for rank in range(self.config.ranks)
        }
        for name, source in sources.items():
            if source.exists():
                text = portable(source.read_text(errors="replace"))
                (logs / name).write_text(text)
                last += text.splitlines()[-3:]
        return "\n".join(last)
