"""The process of a rank: it ends with its parent, leaves nothing behind, and can be asked for
its stacks."""

import faulthandler
import os
import signal
import threading
from pathlib import Path

from perfkit.core.system.scratch import register


def enter_scratch(folder: Path) -> None:
    """Tie this process, and those that it forks, to the scratch folder of its job; see
    perfkit.core.system.scratch.register. SIGUSR1 has it write its stacks to its log."""
    register(folder)
    # Otherwise, a DataLoader process waiting to deliver a batch would outlive its trainer.
    children = Children(folder)
    os.register_at_fork(before=children.before_fork, after_in_child=children.register)
    # The driver sends this signal when a rank hangs, to get each rank's stacks in the log.
    faulthandler.register(signal.SIGUSR1)


class Children:
    """Registers the processes that a rank forks. The kernel would end a child already with the
    thread that has forked it, so only the children of the main thread end with their parent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of_main_thread = True

    def before_fork(self) -> None:
        self.of_main_thread = threading.current_thread() is threading.main_thread()

    def register(self) -> None:
        register(self.folder, ends_with_parent=self.of_main_thread)
