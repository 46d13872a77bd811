"""CPU time of a process and all of its descendants."""

from contextlib import suppress

import psutil

from perfkit.measuring.system.environment import UNAVAILABLE


class ProcessTree:
    """A process that adopts orphans, and all of its descendants.

    The parent of every other process is read only once: a busy machine has thousands of them,
    and psutil's `children` reads all of them in each call.
    """

    def __init__(self, top: psutil.Process) -> None:
        self.top = top
        self.members = {top.pid: top}
        self.others: set[int] = set()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds so far, including exited processes, which their parents
        account for. Raises psutil.NoSuchProcess once the top process has exited."""
        self._add_new_members()
        seconds = 0.0
        for process in [*self.members.values()]:
            used = _cpu_seconds(process)
            if used is not None:
                seconds += used
            elif process is self.top:
                raise psutil.NoSuchProcess(process.pid)
            else:
                del self.members[process.pid]
        return seconds

    def _add_new_members(self) -> None:
        present = {*psutil.pids()}
        new: dict[int, psutil.Process] = {}
        parents: dict[int, int] = {}
        for pid in present - self.others - self.members.keys():
            with suppress(*UNAVAILABLE):
                process = psutil.Process(pid)
                parents[pid] = process.ppid()
                new[pid] = process
        # Each pass adds another generation.
        while children := [pid for pid in new if parents[pid] in self.members]:
            for pid in children:
                self.members[pid] = new.pop(pid)
        self.others = (self.others & present) | new.keys()


def _cpu_seconds(process: psutil.Process) -> float | None:
    """Return the CPU seconds of a process and its ended children; None if it has exited."""
    with suppress(*UNAVAILABLE):
        if process.is_running():
            times = process.cpu_times()
            return times.user + times.system + times.children_user + times.children_system
    return None
