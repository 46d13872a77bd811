"""The network over which NCCL connects the nodes of a measurement, from its own log.

At the level INFO, NCCL logs its initialization and nothing of each collective (src/debug.cc),
so the log takes no time of the window. The line is that of NCCL 2.18 to 2.30 (src/init.cc).
"""

import os
import re
from pathlib import Path

from perfkit.measuring.config import Config

LOG_NAME, LOGS = "nccl-%h-%p.txt", "nccl-*.txt"
"""Name of the log of a process, with its host and number as NCCL writes them; pattern of the
names. Paddle's launcher command removes files that end in .log."""
NETWORK = re.compile(r"NCCL INFO Using network (\w[\w .-]{0,40}\b)")


def log_settings(config: Config, scratch: Path) -> dict[str, str]:
    """Return the variables by which NCCL logs into the folder `scratch`; none if it connects no
    nodes, or if the user has set variables of its log."""
    is_set = any(name.startswith("NCCL_DEBUG") for name in os.environ)
    if config.device != "gpu" or config.nodes == 1 or is_set:
        return {}
    folder = str(scratch).replace("%", "%%")
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/{LOG_NAME}"}


def network(scratch: Path) -> str | None:
    """Return the network in the first log that names one; None without such a log."""
    for log in sorted(scratch.glob(LOGS)):
        found = NETWORK.search(log.read_text(errors="replace"))
        if found:
            return found[1]
    return None
