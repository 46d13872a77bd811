"""A live comparison: sides measured in turn, one repeat of each at a time, in one run.

Repeats are made A1 B1 C1 A2 B2 C2 …, each an ordinary one of an ordinary measurement, so that
what the machine does meanwhile is in both repeats of a pair. What is made already stays: after
an interruption, a kill or a failure the same command goes on where it was.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from perfkit.comparison.keys import beside
from perfkit.comparison.live.sides import Side, Sides
from perfkit.comparison.live.stored import FOLDER, write_comparison
from perfkit.comparison.live.verdict import Asked, judged_in_turn, must_not_differ
from perfkit.comparison.pairs import Measured
from perfkit.config import resolved_path
from perfkit.driver.measure import measurement_folder, resume
from perfkit.driver.progress import Progress
from perfkit.models import MODELS
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.results.schema import Reading
from perfkit.results.store import Measurement
from perfkit.text.messages import coded


@dataclass(frozen=True)
class Live:
    """A live comparison that can be made: its folder, and of each side where it was found."""

    asked: Asked
    folder: Path
    sides: list[Side]
    environments: list[dict[str, Reading]]

    def go_on(self, number: int, until: int, progress: Progress | None = None) -> Measurement:
        """Make the repeats of side `number` that are missing up to `until`."""
        plan = self.sides[number].plan
        environment = self.environments[number]
        return resume(plan.config, plan.protocol, environment, until, progress)


def live(sides: Sides, level: float, threshold: float) -> Live:
    """The comparison of these sides here and now; nothing is measured."""
    made, names = [], []
    for side in sides.sides:
        config, protocol = side.plan.config, side.plan.protocol
        made.append(read_environment(config.framework, config.data_folder))
        names.append(measurement_folder(config, protocol, made[-1]).name)
    asked = Asked(
        sides.command, [(one.name, one.values) for one in sides.sides], level, threshold
    )
    label = [sides.shared["label"]] if sides.shared.get("label") else []
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    name = "-".join([sides.model, *asked.named, *label, digest])
    folder = resolved_path(sides.plan.config.outputs_dir) / FOLDER / name
    return Live(asked, folder, sides.sides, made)


def measure_in_turn(found: Live, say: Callable[[str], None]) -> None:
    """Make what is missing of the repeats of all sides, in turn, and store the comparison after
    each. `say` is told what else happens.

    A side that fails, or turns out to do what must not differ, makes no more repeats; the
    others go on while the base is one of them. Raises RequestError if another process measures
    one of the sides, and KeyboardInterrupt; what was measured is stored.
    """
    found.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(found.folder / ".lock", timeout=0):
            _measure(found, say)
    except Timeout:
        raise RequestError(
            [f"{found.folder.name} is being made by another process right now; wait for it"]
        ) from None


def _measure(found: Live, say: Callable[[str], None]) -> None:
    protocol = found.sides[0].plan.protocol
    # All of them first, so that what can't be measured is told before anything is.
    measurements = [found.go_on(number, 0) for number in range(len(found.sides))]
    _store(found, measurements)
    if all(one.result.status == "complete" for one in measurements):
        return
    going = [*range(len(found.sides))]
    names = [side.name for side in found.sides]
    unit = MODELS[found.sides[0].plan.config.model].unit
    with Progress(protocol.repeats, protocol.steps, unit, variants=names) as progress:
        for repeat in range(1, protocol.repeats + 1):
            for number in [*going]:
                progress.turn_to(found.sides[number].name)
                try:
                    found.go_on(number, repeat, progress)
                finally:
                    measurements[number] = Measurement.read(measurements[number].folder)
                    _store(found, measurements)
                if why := _why_not_on(found, measurements, number):
                    say(f"{found.sides[number].name} makes no more repeats: {why}")
                    going.remove(number)
                    progress.leave(found.sides[number].name)
            if 0 not in going or len(going) < 2:
                return


def _why_not_on(found: Live, measurements: list[Measurement], number: int) -> str:
    """What keeps a side from being measured on; empty if nothing does."""
    if failure := measurements[number].result.failure:
        return coded(failure)
    base, side = Measured(measurements[0]), Measured(measurements[number])
    differs = must_not_differ(base, side, found.asked.meant)
    told = "; ".join(f"{key} {beside(key, *values)}" for key, values in differs.items())
    return f"it differs from {found.sides[0].name} in {told}" if told else ""


def _store(found: Live, measurements: list[Measurement]) -> None:
    write_comparison(found.folder, judged_in_turn(found.asked, measurements))
