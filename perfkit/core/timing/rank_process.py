"""The process of a rank: it ends with its parent, leaves nothing behind, and can be asked for
its stacks."""

import faulthandler
import os
import signal
import tempfile
import threading
from multiprocessing.util import get_temp_dir
from pathlib import Path

from perfkit.core.system.scratch import register


def enter_scratch(folder: Path, shared_memory: str) -> None:
    """Tie this process, and those that it forks, to the scratch folder of its job; see
    perfkit.core.system.scratch.register. SIGUSR1 has it write its stacks to its log."""
    register(folder, shared_memory)
    # Otherwise, a DataLoader process waiting to deliver a batch would outlive its trainer.
    children = Children(folder, shared_memory)
    os.register_at_fork(before=children.before_fork, after_in_child=children.register)
    create_sockets_in(folder)
    # The driver sends this signal when a rank hangs, to get each rank's stacks in the log.
    faulthandler.register(signal.SIGUSR1)


class Children:
    """Registers the processes that a rank forks. The kernel would end a child already with the
    thread that has forked it, so only the children of the main thread end with their parent."""

    def __init__(self, folder: Path, shared_memory: str) -> None:
        self.folder = folder
        self.shared_memory = shared_memory
        self.of_main_thread = True

    def before_fork(self) -> None:
        self.of_main_thread = threading.current_thread() is threading.main_thread()

    def register(self) -> None:
        register(self.folder, self.shared_memory, ends_with_parent=self.of_main_thread)


def create_sockets_in(folder: Path) -> None:
    """Have the sockets of PyTorch's DataLoader created in `folder`: a kill would leave them
    behind elsewhere."""
    # A short name of the folder, because a socket's path has at most 107 bytes.
    tempfile.tempdir = f"/proc/{os.getpid()}/fd/{os.open(folder, os.O_RDONLY)}"
    # multiprocessing keeps the folder that it creates now; other temporary files go elsewhere.
    get_temp_dir()
    tempfile.tempdir = None
