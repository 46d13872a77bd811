"""One rank of a user's script: `python -m perfkit.core.timing.script JOB`, by a launcher.

Runs the script of the job as Python would, with a session in which its perfkit.StepTimer
measures. Appends events to the rank's raw file: start, told, batch, step, loss, pause, warmup,
window, peak, modules, end, or failure; for the task `script_input`: start, input, end.
`docs/results.md` describes the events.
"""

import contextlib
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from perfkit.core.paths import portable
from perfkit.core.timing.classification import MOST_CHARACTERS, classify
from perfkit.core.timing.job import ScriptJob
from perfkit.core.timing.named_warmup import LateWarmupError
from perfkit.core.timing.rank_process import enter_scratch
from perfkit.core.timing.raw_file import RawFile, rank_file
from perfkit.core.timing.session import JOB_VARIABLE, Session, open_session

USAGE_ERROR = 2
"""Exit status of argparse, click and others for arguments that they refuse."""
Failure = dict[str, Any]
"""The event `failure`."""


class LastLine:
    """The last line that the script has written to sys.stderr."""

    def __init__(self) -> None:
        self.text = ""
        self.write = sys.stderr.write
        setattr(sys.stderr, "write", self._write)  # noqa: B010

    def _write(self, text: str) -> int:
        if text.strip():
            self.text = text.strip().splitlines()[-1]
        return self.write(text)


def main(job_file: Path) -> None:
    """Run this rank. Exits with status 1 after a `failure` event."""
    session = begin(job_file)
    last_line = LastLine()
    try:
        run(session.job)
    except BaseException as error:
        if os.getpid() != session.pid:
            # A process that the script has forked ends as it would without perfkit.
            raise
        ended(session, error, last_line.text)
    else:
        if os.getpid() == session.pid:
            ended(session, None, last_line.text)


def begin(job_file: Path) -> Session:
    """Open the session of this process, and write the event `start`."""
    began = time.monotonic()
    job = ScriptJob.read(job_file)
    enter_scratch(job_file.parent)
    # Set by the launcher; a single process runs without a launcher.
    rank = int(os.environ.get(job.rank_variable, "0"))
    session = Session(job, RawFile(rank_file(Path(job.raw_folder), rank)), os.getpid())
    session.raw.write({"event": "start", "pid": session.pid, "began": began})
    os.environ[JOB_VARIABLE] = str(job_file)
    open_session(session)
    return session


def run(job: ScriptJob) -> None:
    """Run the script like `python SCRIPT ARGUMENTS`."""
    if not sys.flags.safe_path:
        # Before, the working directory: `python -m`.
        sys.path[0] = str(Path(os.path.realpath(job.script)).parent)
    sys.argv[:] = [job.script, *job.arguments]
    runpy.run_path(job.script, run_name="__main__")


def ended(session: Session, error: BaseException | None, last_line: str) -> None:
    """Write the event `failure` unless the task is complete, and exit with status 1 then. After
    the task, whatever the script does is its own affair."""
    is_exit = error is None or isinstance(error, SystemExit)
    if not is_exit:
        traceback.print_exc()
    if session.has_ended:
        return
    failure = failure_of(session, error, last_line)
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        session.raw.write(failure)
    finally:
        # Not sys.exit: remains of the framework (a failed pipeline, a rank waiting for
        # others) may keep the interpreter alive.
        os._exit(1)


def place_in_script(error: BaseException, script: str) -> str:
    """Return the line of the script that raised the exception or called what did: "train.py,
    line 7: "; empty if none did."""
    calls = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in calls if frame.f_code.co_filename == script]
    return f"{Path(script).name}, line {lines[-1]}: " if lines else ""


def failure_of(session: Session, error: BaseException | None, last_line: str) -> Failure:
    """Return the failure of a script that has ended before its task was complete: the timer's
    own error, also if the script has caught it, otherwise how the script has ended. `last_line`
    on stderr says why arguments were refused."""
    error = session.error or error
    if isinstance(error, LateWarmupError):
        return failure("late_warmup", step=error.step, last_step=error.last_step)
    if error is not None and not isinstance(error, SystemExit):
        code, message = classify(error)
        if code == "worker_error":
            message = f"{place_in_script(error, session.job.script)}{message}"
        return failure(code, detail=message)
    status = exit_status(error)
    if status:
        params: dict[str, Any] = {"status": status, "step": session.step}
        detail = last_line if status == USAGE_ERROR else ""
        if error is not None and isinstance(error.code, str):
            detail = error.code
        if detail:
            params["detail"] = " ".join(portable(detail).split())[:MOST_CHARACTERS]
        return failure("script_exit", **params)
    if session.step == 0:
        return failure("timer_unused", timer_made=session.has_timer)
    return failure("ended_early", step=session.step, steps=session.steps)


def failure(code: str, **params: Any) -> Failure:
    return {"event": "failure", "code": code, "params": params}


def exit_status(error: SystemExit | None) -> int:
    """Return the status with which Python exits after this exception, 0 after none."""
    if error is None or error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
