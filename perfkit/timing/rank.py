"""One rank of a script: `python -m perfkit.timing.rank JOB (SCRIPT | -m MODULE) ARGUMENTS…`.

Runs the script or module as Python would, with a session in which its perfkit.StepTimer
measures. Appends events to the rank's raw file: start, note, told, batch, step, loss, pause,
warmup, window, peak, modules, end, or failure; for the task `read_input`: start, input, end.
`docs/results.md` describes the events.
"""

import contextlib
import os
import runpy
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Self

from perfkit.timing.failure import (
    MOST_CHARACTERS,
    WORKER_ERROR,
    Failure,
    classify,
    portable,
)
from perfkit.timing.job import Job
from perfkit.timing.rank_process import enter_scratch
from perfkit.timing.raw_file import RawFile, rank_file
from perfkit.timing.session import JOB_VARIABLE, Session, open_session

TIMER_UNUSED = (
    "the script ended and never called timer.step; make timer = "
    "perfkit.StepTimer(samples_per_step=N) before the training, and call timer.step(loss) "
    "after each step of the optimizer"
)


class Command(NamedTuple):
    """What a rank runs: a script's file, or a module, and its arguments."""

    file: str
    module: str | None
    arguments: list[str]

    @classmethod
    def of(cls, words: list[str]) -> Self:
        """Return the command of `SCRIPT ARGUMENTS…` or `-m MODULE ARGUMENTS…`."""
        first, *arguments = words
        if first != "-m":
            return cls(first, None, arguments)
        module, *arguments = arguments
        found = find_spec(module)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"no module named {module!r}")
        return cls(found.origin, module, arguments)

    def run(self) -> None:
        """Run it like `python SCRIPT ARGUMENTS`, or `python -m MODULE ARGUMENTS`."""
        sys.argv[:] = [self.file, *self.arguments]
        if self.module:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
            return
        if not sys.flags.safe_path:
            # Before, the working directory: `python -m`.
            sys.path[0] = str(Path(os.path.realpath(self.file)).parent)
        runpy.run_path(self.file, run_name="__main__")


def main(job_file: Path, words: list[str]) -> None:
    """Run this rank. Exits with status 1 after a `failure` event."""
    began = time.monotonic()
    command = Command.of(words)
    session = begin(job_file, command, began)
    try:
        command.run()
    except BaseException as error:
        if os.getpid() != session.pid:
            # A process that the script has forked ends as it would without perfkit.
            raise
        ended(session, error)
    else:
        if os.getpid() == session.pid:
            ended(session, None)


def begin(job_file: Path, command: Command, began: float) -> Session:
    """Open the session of this process, and write the event `start`."""
    job = Job.read(job_file)
    enter_scratch(job_file.parent)
    # Set by the launcher; a single process runs without a launcher.
    rank = int(os.environ.get(job.rank_variable, "0"))
    raw = RawFile(rank_file(Path(job.raw_folder), rank))
    session = Session(job, command.file, raw, os.getpid())
    raw.write({"event": "start", "pid": session.pid, "began": began})
    if job.cores:
        # Before the framework is imported: its threads inherit the process's CPU affinity.
        cores = job.cores[rank % len(job.cores)]
        os.sched_setaffinity(0, cores)
        raw.write({"event": "note", "values": {"cores": cores}})
    os.environ[JOB_VARIABLE] = str(job_file)
    open_session(session)
    return session


def ended(session: Session, error: BaseException | None) -> None:
    """Write the event `failure` unless the task is complete, and exit with status 1 then. After
    the task, whatever the script does is its own affair."""
    at = time.time()
    is_exit = error is None or isinstance(error, SystemExit)
    if not is_exit:
        traceback.print_exc()
    if session.has_ended:
        return
    is_complete = session.end is not None or session.job.task == "run"
    if is_complete and session.error is None and exit_status(error) == 0:
        session.write_end()
        return
    failure = failure_of(session, error)
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        session.raw.write({"event": "failure", "at": at, **failure._asdict()})
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


def failure_of(session: Session, error: BaseException | None) -> Failure:
    """Return the failure of a script that has ended before its task was complete: the timer's
    own error, also if the script has caught it, otherwise how the script has ended."""
    error = session.error or error
    if error is not None and not isinstance(error, SystemExit):
        code, message = classify(error)
        if code == WORKER_ERROR:
            message = f"{place_in_script(error, session.script)}{message}"
        return Failure(code, message)
    status = exit_status(error)
    if status:
        message = f"the script exited with status {status} after step {session.step}"
        if isinstance(error, SystemExit) and isinstance(error.code, str):
            detail = " ".join(portable(error.code).split())[:MOST_CHARACTERS]
            message = f"{message}: {detail}"
        return Failure("script_exit", message)
    if session.step == 0:
        return Failure("timer_unused", TIMER_UNUSED)
    shorter = "-p measured_steps NUMBER"
    if session.job.measured_seconds:
        shorter += " -p measured_seconds 0"
    return Failure(
        "ended_early",
        f"the script ended after step {session.step} of {session.steps}; let it train longer, "
        f"or measure fewer steps: {shorter}",
    )


def exit_status(error: BaseException | None) -> int:
    """Return the status with which Python exits after this exception, 0 after none."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
