"""Two training processes with alternating steps, so that both see the same machine.

The speed of a shared machine drifts by ten percent within minutes, too much to resolve one
percent between consecutive runs. Here both processes run at once and their steps alternate. A
`sitecustomize` module makes DALI's Pipeline.run wait for the turn in both processes.
"""

import os
from itertools import pairwise
from pathlib import Path

from measuring import planted

PLANT = """
import sys
# A rank: python -m perfkit.timing.rank JOB -m perfkit.training.paddle.train.
command = " ".join(sys.orig_argv[1:6])
if "perfkit.training.paddle.train" in command or "bare_loop.py" in command:
    import os, time
    from nvidia.dali.pipeline import Pipeline
    side = os.environ["TURNS_SIDE"]
    done, go = (os.open(f"{{side}}.{{way}}", os.O_RDWR) for way in ("done", "go"))
    times = open(f"{{side}}.times", "w", buffering=1)
    run = Pipeline.run

    def in_turn(self):
        entered = time.perf_counter()
        os.write(done, b"x")
        os.read(go, 1)
        print(entered, time.perf_counter(), file=times)
        return run(self)

    Pipeline.run = in_turn
"""


class Turns:
    """Alternating turns of sides "a" and "b", with pipes in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipes = {}
        for side in "ab":
            for way in ("done", "go"):
                path = folder / f"{side}.{way}"
                os.mkfifo(path)
                self.pipes[side, way] = os.open(path, os.O_RDWR)

    def variables(self, side: str) -> dict[str, str]:
        """Return the environment variables of the process of `side`."""
        # Threads that spin after a step would slow the other side.
        settings = {"KMP_BLOCKTIME": "0", "TURNS_SIDE": str(self.folder / side)}
        return settings | planted(self.folder, PLANT.format())

    def give(self, turns: int) -> None:
        """Let both sides take `turns` turns in alternating order; a side waits for its next
        batch before the other continues. Later batches, as for an evaluation, do not wait."""
        for side in "ab":
            os.read(self.pipes[side, "done"], 1)
        for turn in range(turns):
            for side in "ab" if turn % 2 == 0 else "ba":
                os.write(self.pipes[side, "go"], b"x")
                if turn < turns - 1:
                    os.read(self.pipes[side, "done"], 1)
        for side in "ab":
            os.write(self.pipes[side, "go"], b"x" * 100)

    def times(self, side: str) -> list[tuple[float, float]]:
        """Return, for each batch, the times of its request and of its turn, in seconds."""
        lines = (self.folder / f"{side}.times").read_text().splitlines()
        times = []
        for line in lines:
            request, turn = line.split()
            times.append((float(request), float(turn)))
        return times

    def waits(self, side: str) -> list[float]:
        """Return the seconds that each batch waited for its turn."""
        return [turn - request for request, turn in self.times(side)]

    def step_seconds(self, side: str) -> list[float]:
        """Return the seconds from each turn to the next request: a step, input included."""
        seconds = []
        for (_request, turn), (next_request, _next_turn) in pairwise(self.times(side)):
            seconds.append(next_request - turn)
        return seconds
