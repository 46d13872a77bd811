"""The exact calls of the timed loop: what it does to the device, the clock, the input, the
trainer and the raw file, and in which order. They were recorded before the loop shared its code
with perfkit.StepTimer, so the timed region is what it was."""

import re
from pathlib import Path
from textwrap import fill

import pytest

from perfkit.core.worker.loop import train


class RecordedTraining:
    """A device, a clock, an input, a trainer and a raw file that note every call.

    An asynchronous device completes an event when it is waited for, and otherwise `delay`
    events later.
    """

    waits_in_update = False

    def __init__(self, *, is_asynchronous, delay=0, steady_after=0):
        self.is_asynchronous = is_asynchronous
        self.delay = delay
        self.steady_after = steady_after
        self.lines = [[]]
        self.readings = 0
        self.events = 0
        self.completed = 0
        self.batches = 0
        self.shares = 0

    def note(self, call):
        self.lines[-1].append(call)

    def __iter__(self):
        return self

    def __next__(self):
        self.batches += 1
        self.note(f"next b{self.batches}")
        return f"b{self.batches}"

    def clock(self):
        self.readings += 1
        self.note(f"clock t{self.readings}")
        return float(self.readings)

    def backward(self, batch, *, sync_gradients):
        self.note(f"backward {batch} {'exchange' if sync_gradients else 'alone'}")
        self.shares += 1
        return RecordedLoss(self, f"l{self.shares}")

    def update(self):
        self.note("update")
        return f"result of {self.batches}"

    def synchronize(self):
        self.lines.append([])
        self.completed = self.events
        self.note("synchronize")

    def record_event(self, result=None):
        self.events += 1
        self.completed = max(self.completed, self.events - self.delay)
        self.note(f"record e{self.events} ({result})")
        return self.events

    def is_complete(self, event):
        complete = event <= self.completed
        self.note(f"e{event} is {'complete' if complete else 'pending'}")
        return complete

    def wait_for(self, event):
        self.lines.append([])
        self.completed = max(self.completed, event)
        self.note(f"wait for e{event}")

    def seconds_between(self, earlier, later):
        self.note(f"e{earlier} to e{later}")
        return float(later - earlier)

    def reset_peak_memory(self):
        self.lines.append([])
        self.note("reset memory")

    def is_warmed_up(self, step):
        self.lines.append([])
        self.note(f"warmed up after {step}?")
        return step >= self.steady_after

    def write(self, *events):
        written = []
        for event in events:
            fields = [f"{name}={value}" for name, value in event.items() if name != "event"]
            written.append(" ".join([event["event"], *fields]))
        self.note(f"write {', '.join(written)}")


class RecordedLoss:
    """A loss whose sum and whose value are noted."""

    def __init__(self, training, name):
        self.training = training
        self.name = name

    def __add__(self, other):
        return RecordedLoss(self.training, f"{self.name}+{other.name}")

    def __float__(self):
        self.training.note(f"float {self.name}")
        return 0.5


def calls_of(training, **changes):
    """Return the calls of a training with one step of warm-up and two of the window."""
    how = {"samples_per_step": 8, "accumulate": 1, "warmup_steps": 1, "measured_steps": 2}
    how |= {"read_losses_at_once": not training.is_asynchronous} | changes
    window = train(
        training,
        training,
        training,
        training.write,
        is_warmed_up=training.is_warmed_up,
        clock=training.clock,
        **how,
    )
    training.note(f"window of {window.seconds} from {window.began}")
    paragraphs = []
    for line in training.lines:
        if line:
            paragraphs.append(fill("; ".join(line), 96, subsequent_indent="    "))
    return "\n".join(paragraphs)


RECORDED = (Path(__file__).parent / "snapshots" / "timed_loop.txt").read_text()
TWO_BATCHES = {"accumulate": 2, "announce": True}
TRAININGS = {
    "a CPU": ({"is_asynchronous": False}, {}),
    "a CPU, two batches a step": ({"is_asynchronous": False}, TWO_BATCHES),
    "a CPU, no warm-up": ({"is_asynchronous": False}, {"warmup_steps": 0}),
    "a CPU, automatic warm-up": ({"is_asynchronous": False, "steady_after": 3}, {}),
    "a GPU": ({"is_asynchronous": True, "delay": 2}, {}),
    "a GPU that waits for its host": ({"is_asynchronous": True}, {}),
    "a GPU, two batches a step": ({"is_asynchronous": True, "delay": 2}, TWO_BATCHES),
    "a GPU, automatic warm-up": (
        {"is_asynchronous": True, "delay": 2, "steady_after": 3},
        {},
    ),
    "JAX on a CPU": ({"is_asynchronous": True, "delay": 2}, {"read_losses_at_once": True}),
}
"""Case -> how the device behaves, and changes of the training."""


def recorded_calls():
    """Return case -> the recorded calls."""
    sections = re.findall(r"^## ([^\n]+)\n(.*?)\n\n", RECORDED, re.MULTILINE | re.DOTALL)
    return dict(sections)


def test_every_recorded_training_is_checked():
    assert recorded_calls().keys() == TRAININGS.keys()


@pytest.mark.parametrize("case", TRAININGS)
def test_the_timed_loop_makes_exactly_the_recorded_calls(case):
    device, changes = TRAININGS[case]
    training = RecordedTraining(**device)
    assert calls_of(training, **changes) == recorded_calls()[case]
