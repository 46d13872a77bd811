"""How the workers of a repeat exited: what is known about their processes."""

import contextlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from perfkit.measuring.results.failures import Failure

MEMORY_EVENTS = {
    "": "sys/fs/cgroup{}/memory.events.local",
    "memory": "sys/fs/cgroup/memory{}/memory.oom_control",
}
"""Files with a control group's count of out-of-memory kills, by the controllers in a line of
/proc/self/cgroup (none in version 2). A container has its own group at the root."""


class ExitInfo(BaseModel):
    """How the workers of a repeat exited, on one node or on all nodes together."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    status: int | None = None
    """exit status of the framework's launcher; with several nodes, the first that is not 0"""
    exited_first: list[int] = []
    """ranks that were the first of their node to exit by themselves, as far as can be told"""
    idle: list[int] = []
    """ranks that had written no event for a while when the workers ended"""
    killed_for_memory: bool = False
    """whether the kernel killed a process of the workers' control group for lack of memory"""
    logs: dict[str, str] = {}
    """text by name, without home and checkout paths; of a long log, beginning and end"""
    killed_after_end: bool = False
    """whether workers were killed that ran on after the end of all ranks of their node"""
    nccl_network: str | None = None
    """network over which NCCL connects the nodes, if it has logged that"""
    error: Failure | None = None
    """the failure outside the workers that ended the repeat, if any"""


def killed_for_memory(root: Path = Path("/")) -> int:
    """Return how many processes of this control group, which the workers share, the kernel's
    out-of-memory killer has killed; 0 without a count by group."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _hierarchy, controllers, group = line.split(":", 2)
            if controllers not in MEMORY_EVENTS:
                continue
            for place in (group, ""):
                file = root / MEMORY_EVENTS[controllers].format(place)
                if file.exists():
                    counts = dict(line.split() for line in file.read_text().splitlines())
                    return int(counts.get("oom_kill", 0))
    return 0
