"""Two training processes that take their steps in turn, so that both see the same machine.

The speed of a shared machine drifts by ten percent from minute to minute, too much to see a
percent between runs one after the other. Here both processes live at once, and a step of one
follows a step of the other. The turn is taken inside DALI's Pipeline.run, by a module that
Python runs first (`sitecustomize`), in both processes alike.
"""

import os
from itertools import pairwise
from pathlib import Path

from measuring import planted

PLANT = """
import sys
told = " ".join(sys.orig_argv[1:4])
if "perfkit.worker.rank" in told or "bare_loop.py" in told:
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
    """The two sides, "a" and "b", in `folder`; each process gets its `variables`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipes = {}
        for side in "ab":
            for way in ("done", "go"):
                path = folder / f"{side}.{way}"
                os.mkfifo(path)
                self.pipes[side, way] = os.open(path, os.O_RDWR)

    def variables(self, side: str) -> dict[str, str]:
        """What the process of `side` needs in its environment."""
        # A pool of threads that spins after its step would slow the other side's.
        settings = {"KMP_BLOCKTIME": "0", "TURNS_SIDE": str(self.folder / side)}
        return settings | planted(self.folder, PLANT.format())

    def give(self, turns: int) -> None:
        """Let both sides take so many turns: a waits in its next one before b has its. The
        batches after these, as for an evaluation, do not wait."""
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
        """For each batch asked for: when, and when the turn for it had come, seconds."""
        lines = (self.folder / f"{side}.times").read_text().splitlines()
        return [(float(asked), float(came)) for asked, came in map(str.split, lines)]

    def waits(self, side: str) -> list[float]:
        """Seconds that each batch was kept back for its turn."""
        return [came - asked for asked, came in self.times(side)]

    def step_seconds(self, side: str) -> list[float]:
        """Seconds from each turn to asking for the next batch: a step, its input included."""
        return [later[0] - earlier[1] for earlier, later in pairwise(self.times(side))]
