"""The measurement in which this process takes part, if any.

It is state of the process: the script makes a StepTimer and knows nothing of the rank in which
perfkit.timing.rank runs it. Processes that the script starts have no session.
"""

import os
from dataclasses import dataclass
from typing import Any

from perfkit.timing.job import Job
from perfkit.timing.raw_file import RawFile

JOB_VARIABLE = "PERFKIT_SCRIPT_JOB"
"""Environment variable with the file of the job, for the rank and the processes that it
starts."""


@dataclass
class Session:
    """One rank of a measured script, and how far it has come."""

    job: Job
    script: str
    """absolute path of the script's file"""
    raw: RawFile
    pid: int
    step: int = 0
    """the last step that has ended"""
    error: BaseException | None = None
    """what the timer has raised, even if the script has caught it"""
    steps: int = 0
    """the last step of the window; before that is known, the fewest of the protocol"""
    end: dict[str, Any] | None = None
    """the fields of the event `end` once the window is over; written when the script ends"""
    has_ended: bool = False
    """whether the task is complete, and the event `end` written"""

    def __post_init__(self) -> None:
        self.steps = self.job.warmup_steps + self.job.measured_steps

    def write_end(self) -> None:
        """Write the event `end`: the task is complete."""
        self.raw.write({"event": "end", **(self.end or {})})
        self.has_ended = True


class TimerInChildError(RuntimeError):
    """A process that the script has started called the timer."""


_SESSIONS: dict[int, Session] = {}
"""The session of this process by its PID: a fork has another PID, and thus none."""


def open_session(session: Session) -> None:
    """Make `session` that of its process."""
    _SESSIONS[session.pid] = session


def current_session() -> Session | None:
    """Return the session of this process; None if it is not a rank of a measured script."""
    return _SESSIONS.get(os.getpid())


def refuse_child() -> None:
    """Raise TimerInChildError in a process that a rank of a measured script has started."""
    if JOB_VARIABLE in os.environ and current_session() is None:
        raise TimerInChildError(
            "timer.step was called in a process that the script has started. `perfkit run` "
            "starts one process for each rank itself (-p gpus NUMBER, or -p processes NUMBER "
            "on a CPU), with the environment variables of the framework's launcher; train in "
            "that process, without torch.multiprocessing.spawn"
        )
