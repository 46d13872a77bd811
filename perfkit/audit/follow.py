"""The rank of a command: `python -m perfkit.audit.follow JOB OPTIONS COMMAND…`, with Options as
JSON.

Runs the command and copies its output to its own. Of each line that tells of steps, it writes
the event `print` with its arrival, until such lines cover warm-up and window. Then it ends the
command, or waits for its end, and reads the whole log once as `perfkit audit` does
(log_steps.py): told, warmup, step, window, end, or failure.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from perfkit.audit.log_steps import CommandLog, Event, LogFailure, LogTooShort, Options
from perfkit.audit.print_count import GROWTH, PrintCount
from perfkit.audit.reader import ESCAPE
from perfkit.timing.job import Job
from perfkit.timing.rank_process import enter_scratch
from perfkit.timing.raw_file import RawFile, rank_file

POLL_SECONDS = 0.005
"""Time after which a log file is read again: the arrival of its lines is as exact as this."""
ENDING_SECONDS = 20.0
"""Time in which a command may end after SIGTERM."""
LARGEST_READ = 2**16
KEPT = 1024
"""Last bytes of a file by which its growth is told from its being written anew."""


class Tail:
    """What is appended to a file from now on; the whole file if it is written anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last, self.offset = b"", 0
        self.read()

    def read(self) -> bytes:
        if not self.path.exists():
            return b""
        with self.path.open("rb") as stream:
            stream.seek(self.offset - len(self.last))
            if stream.read(len(self.last)) != self.last:
                self.last, self.offset = b"", 0
                stream.seek(0)
            content = stream.read()
        self.last = (self.last + content)[-KEPT:]
        self.offset += len(content)
        return content


class LineSplitter:
    """Splits bytes into lines at newlines and carriage returns. A progress bar writes these
    before a state, so that a line is complete when the next one begins: its arrival is that of
    its last character."""

    def __init__(self) -> None:
        self.rest, self.rest_at = b"", 0.0

    def split(self, content: bytes, at: float) -> Iterator[tuple[str, float]]:
        """Yield the lines that the content, which arrived `at`, completes, with their
        arrival."""
        first, *others = re.split(rb"\r\n|\r|\n", content)
        if first:
            self.rest, self.rest_at = self.rest + first, at
        for other in others:
            yield ESCAPE.sub("", self.rest.decode(errors="replace")), self.rest_at
            self.rest, self.rest_at = other, at


class Followed:
    """A running command, whose log a thread takes as it grows, also while it is being read."""

    def __init__(self, command: list[str], directory: Path, tail: Tail | None) -> None:
        self.tail = tail
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdout
        self.descriptor = self.process.stdout.fileno()
        self.has_closed = False
        self.arrived: SimpleQueue[tuple[bytes, float]] = SimpleQueue()
        """what the log has grown by, and when; no bytes at its end"""
        self.thread = Thread(target=self._take_all, daemon=True)
        self.thread.start()

    def _take_all(self) -> None:
        """Take the log until the command has exited, and no process of its tree can write any
        more."""
        while not self.has_closed or self.process.poll() is None:
            output = self._read()
            content = self.tail.read() if self.tail else output
            if content:
                self.arrived.put((content, time.monotonic()))
        rest = self.tail.read() if self.tail else b""
        self.arrived.put((rest + b"\n", time.monotonic()))
        self.arrived.put((b"", 0.0))

    def _read(self) -> bytes:
        """Wait a moment for output, and return it, copied to that of this process."""
        if self.has_closed:
            time.sleep(POLL_SECONDS)
            return b""
        readable, _, _ = select.select([self.descriptor], [], [], POLL_SECONDS)
        if not readable:
            return b""
        content = os.read(self.descriptor, LARGEST_READ)
        self.has_closed = not content
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return content

    def end(self) -> None:
        """End the process group: SIGTERM, after ENDING_SECONDS SIGKILL. Processes that are not
        in the group end with the supervisor."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
            self.thread.join(ENDING_SECONDS)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class CommandRank:
    """Follows a command under the protocol of a job, as its only rank."""

    def __init__(self, job: Job, folder: Path, raw: RawFile, options: Options) -> None:
        self.raw = raw
        self.until = options.until
        self.log = CommandLog(folder / "command.log", job, options)
        self.count = PrintCount(job)
        self.splitter = LineSplitter()

    def run(self, command: Followed) -> int:
        """Follow the command, write the events, and return the exit status of this process."""
        try:
            events = self._follow(command)
            command.end()
            self.raw.write(*events)
        except LogFailure as failure:
            event = {"event": "failure", "at": time.time(), "code": failure.code}
            self.raw.write(event | {"message": failure.message})
            return 1
        return 0

    def _follow(self, command: Followed) -> list[Event]:
        """Read the log until it covers the window, or the command ends, and return its events.
        Raises LogFailure."""
        next_try = 0.0
        while True:
            content, at = command.arrived.get()
            if not content:
                break
            self._take(content, at)
            if self.until == "end" or not self.count.is_enough or self.count.count < next_try:
                continue
            try:
                return self.log.events()
            except LogTooShort:
                # The whole log counts less than its prints so far, such as no validations.
                next_try = GROWTH * self.count.count
        status = command.process.wait()
        if status:
            raise LogFailure(
                "script_exit",
                f"the command exited with status {status} after step {self.count.steps}",
            )
        return self.log.events()

    def _take(self, content: bytes, at: float) -> None:
        """Take what the log has grown by."""
        for line, line_at in self.splitter.split(content, at):
            self.log.add(line, line_at)
            new = self.count.add(line, line_at)
            if new:
                event = {"event": "print", "step": new.last, "steps": new.steps}
                in_window = bool(self.count.parts.window.prints)
                self.raw.write(event | {"seconds": new.seconds, "in_window": in_window})


def main(job_file: str, options: str, *command: str) -> int:
    """Run this rank, and return its exit status."""
    began = time.monotonic()
    given = Options(**json.loads(options))
    job, folder = Job.read(Path(job_file)), Path(job_file).parent
    enter_scratch(folder)
    # At the time limit, the driver asks for stacks, which tell nothing of the command.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    raw = RawFile(rank_file(Path(job.raw_folder), 0))
    raw.write({"event": "start", "pid": os.getpid(), "began": began})
    rank = CommandRank(job, folder, raw, given)
    tail = Tail(Path(given.log_file)) if given.log_file else None
    return rank.run(Followed([*command], Path(given.directory), tail))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
