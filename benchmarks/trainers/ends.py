"""The ends of a trainer's steps by perfkit.StepTimer, in the process that prints its log."""

from pathlib import Path

import perfkit


class StepEnds:
    """Writes each step's number and end, in seconds, to ends.txt in the working directory."""

    def __init__(self) -> None:
        self.timer = perfkit.StepTimer(samples_per_step=1)
        self.file = Path("ends.txt").open("w", buffering=1)  # noqa: SIM115

    def step(self) -> None:
        self.timer.step()
        ends = self.timer._timer.ends
        print(len(ends), ends[-1], file=self.file)
