"""Starts a command under a supervisor (supervisor.py), and ends it."""

import contextlib
import subprocess
import sys
from math import inf
from pathlib import Path

PYTHON = (sys.executable, "-P")
"""Starts a program of perfkit's own. Without -P, a file in the working directory that is called
like a module of the standard library would take its place."""
SUPERVISOR = "perfkit.measuring.driver.supervisor"
"""The module of the supervisor above the ranks of a node."""
RANK = "perfkit.timing.rank"
"""The module of a rank's process."""
FOLLOW = "perfkit.audit.follow"
"""The module that runs and follows a command, which this package starts and never imports."""
LOG = "supervisor.log"
"""The file in the scratch folder with the output of a supervisor and its command."""
ENDING_SECONDS = 12.0


def start_supervised(
    command: list[str],
    scratch: Path,
    environment: dict[str, str],
    log: Path | None = None,
    cwd: Path | None = None,
    seconds: float = inf,
) -> subprocess.Popen[bytes]:
    """Run `command` under a supervisor, which ends all of its processes on `close`, when this
    process ends or after `seconds`. Both write their output to `log`, by default LOG in
    `scratch`."""
    supervisor = [*PYTHON, "-m", SUPERVISOR, str(scratch), str(seconds)]
    log = log or scratch / LOG
    with log.open("wb") as output:
        return subprocess.Popen(
            [*supervisor, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )


def close(supervisor: subprocess.Popen[bytes]) -> None:
    """Have a supervisor end its command, and wait for it for a limited time."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(ENDING_SECONDS)
