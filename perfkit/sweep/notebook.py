"""Runs the notebooks of jobs, each by papermill and a kernel in processes of its own.

Importing papermill, the kernel and perfkit would take longer than all else in a job besides its
measurement. The processes are therefore forked from one that has imported them.
"""

import asyncio
import multiprocessing
import os
import tempfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import papermill
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

IMPORTED = [__name__, "perfkit.driver.measure", "perfkit.report.site"]
LONGEST_PATH = 60
"""Bytes of a folder in which a socket's path stays below the 108 that Linux allows."""


def run(notebook: str, parameters: dict[str, Any], executed: Path, log: Path) -> int:
    """Run a notebook; return the exit status of papermill's process, 0 if all is well."""
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_PATH:
        tempfile.tempdir = "/tmp"
    # matplotlib reads it when it is imported; a kernel of its own would set it before.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(IMPORTED)
    process = server.Process(target=_execute, args=(notebook, parameters, executed, log))
    process.start()
    process.join()
    return process.exitcode or 0


def _execute(notebook: str, parameters: dict[str, Any], executed: Path, log: Path) -> None:
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    kernels = KernelProvisionerFactory.instance()
    kernels.default_provisioner_name = Forked.__name__
    kernels.provisioners[Forked.__name__] = EntryPoint(
        Forked.__name__, f"{__name__}:{Forked.__name__}", kernels.GROUP_NAME
    )
    # The notebook is written at its end, not after each cell, which takes time.
    papermill.execute_notebook(
        notebook,
        str(executed),
        parameters,
        progress_bar=False,
        request_save_on_cell_execute=False,
        autosave_cell_every=0,
        shutdown_kernel="immediate",
    )


class Forked(LocalProvisioner):
    """Starts a kernel as a fork of this process."""

    process: Any = None

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        words = cmd[cmd.index("-f") :]
        served = (words, options["env"], os.getpid())
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=_serve, args=served)
        self.process.start()
        self.pid = self.process.pid
        # Signals reach the processes that the notebook started, too.
        os.setpgid(self.pid, self.pid)
        return self.connection_info

    async def send_signal(self, signum: int) -> None:
        os.killpg(self.process.pid, signum)

    async def poll(self) -> int | None:
        return self.process.exitcode if self.process else 0

    async def wait(self) -> int | None:
        while (status := await self.poll()) is None:
            await asyncio.sleep(0.01)
        self.process = None
        return status


def _serve(words: list[str], environment: dict[str, str], parent: int) -> None:
    """Run the kernel, which ends with its parent."""
    os.environ |= environment
    # The parent's loop is running.
    asyncio.set_event_loop(asyncio.new_event_loop())
    IPKernelApp.launch_instance(words, parent_handle=parent)
