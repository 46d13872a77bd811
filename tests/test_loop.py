"""The timed loop, with a fake trainer of known step time and a fake clock."""

import json
import time
from inspect import signature
from itertools import count

import pytest

from perfkit.analysis.warnings import window_disagrees
from perfkit.core.worker.loop import compute_seconds, train
from perfkit.timing.course import Course
from perfkit.timing.devices import CpuDevice
from perfkit.timing.recorder import LossNotFiniteError, NotSynchronizedError, StepRecorder

STEP_SECONDS = 0.5
WAIT_SECONDS = 0.25


class FakeClock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeTrainer:
    """Takes STEP_SECONDS per step, and ten times as long for the first two steps."""

    def __init__(self, clock, losses=None):
        self.clock, self.losses, self.steps = clock, losses, 0
        self.calls = []

    def backward(self, batch, *, sync_gradients):
        self.calls.append(("backward", batch, sync_gradients))
        return self.losses[self.steps] if self.losses else 1 / (self.steps + 1)

    def update(self):
        self.calls.append(("update",))
        self.steps += 1
        self.clock.now += STEP_SECONDS * (10 if self.steps <= 2 else 1)


class FakeGpu:
    """Queues work instantly and runs it in order."""

    def __init__(self, clock):
        self.clock, self.busy_until = clock, clock.now
        self.synchronized = 0

    def queue(self, seconds):
        self.busy_until = max(self.busy_until, self.clock.now) + seconds

    def synchronize(self):
        self.synchronized += 1
        self.clock.now = max(self.clock.now, self.busy_until)

    def wait_for(self, event):
        self.clock.now = max(self.clock.now, event)

    def record_event(self, _result=None):
        return max(self.busy_until, self.clock.now)

    def is_complete(self, event):
        return event <= self.clock.now

    def seconds_between(self, earlier, later):
        assert self.is_complete(later), "an event was read before the device passed it"
        return later - earlier

    def reset_peak_memory(self):
        self.memory_counted_from = self.busy_until


class Loss:
    """A loss on the device: reading it waits for the device."""

    def __init__(self, gpu):
        self.gpu = gpu

    def __add__(self, other):
        return Loss(self.gpu)

    def __float__(self):
        self.gpu.synchronize()
        return 1.0


class FakeGpuTrainer:
    steps = 0

    def __init__(self, gpu):
        self.gpu = gpu

    def backward(self, batch, *, sync_gradients):
        self.gpu.queue(STEP_SECONDS * 3 / 4)
        return Loss(self.gpu)

    def update(self):
        self.gpu.queue(STEP_SECONDS / 4)
        self.steps += 1


@pytest.fixture
def clock():
    return FakeClock()


def batches(clock, wait=0.0):
    for number in count():
        clock.now += wait
        yield number


def run(clock, trainer=None, device=None, *, wait=0.0, events=None, **changes):
    """Return the window and events of a training, by default with 2 + 10 steps."""
    events = [] if events is None else events
    how = {"samples_per_step": 8, "accumulate": 1, "warmup_steps": 2, "measured_steps": 10}
    how |= {"read_losses_at_once": True, "clock": clock} | changes
    input_ = how.pop("batches", batches(clock, wait))
    trainer, device = trainer or FakeTrainer(clock), device or CpuDevice(clock)
    window = train(trainer, input_, device, events.append, written_to(events), **how)
    return window, events


def written_to(events):
    """Return a function that appends the events of JSON lines."""
    return lambda lines: events.extend(map(json.loads, lines))


def run_on(gpu, trainer=None, **changes):
    return run(
        gpu.clock, trainer or FakeGpuTrainer(gpu), gpu, read_losses_at_once=False, **changes
    )


def of_kind(events, kind, field=None):
    return [event[field] if field else event for event in events if event["event"] == kind]


def test_known_step_times_are_measured_exactly_without_warm_up(clock):
    window, events = run(clock)
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    assert window.began + window.seconds == pytest.approx(clock())
    assert of_kind(events, "step", "step") == [*range(1, 13)]
    seconds = [5.0] * 2 + [STEP_SECONDS] * 10
    assert of_kind(events, "step", "seconds") == pytest.approx(seconds)


def test_data_wait_is_recorded_and_steps_add_up_to_the_window(clock):
    window, events = run(clock, wait=WAIT_SECONDS)
    assert of_kind(events, "step", "data_wait_seconds") == pytest.approx([WAIT_SECONDS] * 12)
    assert window.seconds == pytest.approx(10 * (STEP_SECONDS + WAIT_SECONDS))
    assert sum(of_kind(events, "step", "seconds")[2:]) == pytest.approx(window.seconds)


def test_window_and_telemetry_use_the_same_clock():
    timed = (train, compute_seconds, CpuDevice)
    assert {signature(one).parameters["clock"].default for one in timed} == {time.perf_counter}
    clocks = [time.get_clock_info(name) for name in ("perf_counter", "monotonic")]
    assert {clock.implementation for clock in clocks} == {"clock_gettime(CLOCK_MONOTONIC)"}


def test_the_window_of_an_asynchronous_device_is_device_time(clock):
    gpu = FakeGpu(clock)
    window, events = run_on(gpu)
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    assert of_kind(events, "step", "seconds") == pytest.approx([STEP_SECONDS] * 12)
    assert len(of_kind(events, "loss")) == 12
    # Peak memory is counted from the start of the window.
    assert gpu.memory_counted_from == pytest.approx(window.began)


def test_the_window_ends_with_the_last_step_not_with_prefetching(clock):
    class Prefetched(FakeGpu):
        """Its last event precedes work of another stream."""

        def record_event(self, result=None):
            event = super().record_event(result)
            if trainer.steps == 12:
                self.queue(100.0)
            return event

    gpu = Prefetched(clock)
    trainer = FakeGpuTrainer(gpu)
    window, _ = run_on(gpu, trainer)
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)


def test_nothing_synchronizes_the_device_inside_the_window(clock):
    gpu, inside = FakeGpu(clock), []

    class Watching(FakeGpuTrainer):
        def backward(self, batch, *, sync_gradients):
            inside.append(gpu.synchronized)
            return super().backward(batch, sync_gradients=sync_gradients)

    run_on(gpu, Watching(gpu), accumulate=2, announce=True)
    assert len(inside) == 24
    assert len(set(inside[4:])) == 1


@pytest.mark.parametrize(("forgotten", "step"), [("synchronize", 1), ("wait_for", 3)])
def test_a_missing_synchronization_ends_the_training(clock, monkeypatch, forgotten, step):
    """Before the window or at its end, only the host would have been timed."""
    monkeypatch.setattr(FakeGpu, forgotten, lambda *_: None)
    with pytest.raises(NotSynchronizedError, match=f"had not completed step {step}"):
        run_on(FakeGpu(clock))


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_window_differing_from_its_steps_reveals_a_missing_wait(
    clock, monkeypatch, forgotten
):
    """Even if the device reports completion, its own events reveal the missing wait."""
    if forgotten:
        for name in ("synchronize", "wait_for"):
            monkeypatch.setattr(FakeGpu, name, lambda *_: None)
        monkeypatch.setattr(FakeGpu, "is_complete", lambda *_: True)
    window, events = run_on(FakeGpu(clock), wait=0.001)
    steps = of_kind(events, "step", "seconds")[2:]
    assert len(steps) == 10
    assert window_disagrees(window.seconds, steps) is forgotten


def test_a_nonfinite_loss_ends_the_training_and_keeps_earlier_steps(clock):
    trainer, events = FakeTrainer(clock, losses=[1.0, 0.9, float("nan")]), []
    with pytest.raises(LossNotFiniteError, match="nan at step 3"):
        run(clock, trainer, events=events)
    assert of_kind(events, "loss", "value") == [1.0, 0.9]
    assert len(of_kind(events, "step")) == 3


def test_accumulated_gradients_are_synchronized_and_applied_once(clock):
    trainer = FakeTrainer(clock)
    run(clock, trainer, accumulate=3, warmup_steps=1, measured_steps=1)
    assert trainer.calls == [
        *(("backward", 0, False), ("backward", 1, False), ("backward", 2, True), ("update",)),
        *(("backward", 3, False), ("backward", 4, False), ("backward", 5, True), ("update",)),
    ]


def test_waits_and_losses_of_micro_batches_add_up(clock):
    trainer = FakeTrainer(clock, losses=[0.5, 0.25, 0.125])
    window, events = run(clock, trainer, wait=WAIT_SECONDS, accumulate=4, measured_steps=1)
    waits = of_kind(events, "step", "data_wait_seconds")
    assert waits == pytest.approx([4 * WAIT_SECONDS] * 3)
    assert of_kind(events, "step", "samples") == [8] * 3
    assert window.seconds == pytest.approx(4 * WAIT_SECONDS + STEP_SECONDS)
    # A trainer returns shares of a step's loss, not losses of micro-batches.
    assert of_kind(events, "loss", "value") == [2.0, 1.0, 0.5]


def test_the_batch_event_precedes_gradient_synchronization(clock):
    how, events = {"accumulate": 2, "warmup_steps": 1, "measured_steps": 2}, []

    class Telling(FakeTrainer):
        def backward(self, batch, *, sync_gradients):
            events.append({"event": "exchange" if sync_gradients else "alone"})
            return super().backward(batch, sync_gradients=sync_gradients)

    run(clock, Telling(clock), events=events, announce=True, **how)
    kinds = ["alone", "batch", "exchange", "step", "loss"]
    assert [event["event"] for event in events] == kinds * 3
    assert of_kind(events, "batch", "step") == [1, 2, 3]
    assert not of_kind(run(clock, **how)[1], "batch")


class AloneTrainer:
    """Has one gradient, and backward passes of known duration."""

    def __init__(self, waits, seconds):
        self.waits, self.seconds = waits, iter(seconds)
        self.gradient, self.discards = 0, 0

    def backward(self, batch, *, sync_gradients):
        assert not sync_gradients, "would wait for other ranks"
        self.waits(next(self.seconds))
        self.gradient += 1

    def update(self):
        raise AssertionError("no parameter may change")

    def zero_grad(self):
        self.gradient, self.discards = 0, self.discards + 1


def test_compute_seconds_are_the_median_step_and_change_nothing(clock):
    def take(seconds):
        clock.now += seconds

    trainer = AloneTrainer(take, [0.1, 0.2, 5.0, 0.4, 0.3, 0.2])
    waiting = batches(clock, WAIT_SECONDS)
    seconds = compute_seconds(trainer, waiting, CpuDevice(clock), accumulate=2, clock=clock)
    # Steps of 0.3, 5.4 and 0.5 s, with two data waits in each.
    assert seconds == pytest.approx(0.5 + 2 * WAIT_SECONDS)
    assert (trainer.gradient, trainer.discards) == (0, 3)


def test_compute_seconds_of_an_asynchronous_device_are_device_time(clock):
    gpu = FakeGpu(clock)
    gpu.queue(100.0)  # from the window, not counted
    trainer = AloneTrainer(gpu.queue, [0.5] * 3)
    seconds = compute_seconds(trainer, batches(clock), gpu, accumulate=1, clock=clock)
    assert seconds == pytest.approx(0.5)


def test_a_pause_is_excluded_from_its_step_and_the_window_on_any_device(clock):
    """Each step takes its time before and after the pause, in which the device has other work.
    Work that was submitted before the pause belongs to the step."""
    gpu, events = FakeGpu(clock), []
    recorder = StepRecorder(gpu, clock, written_to(events), 8, False)
    course = Course(recorder, 1, 3, lambda _step: True)
    for _step in range(4):
        gpu.queue(0.5)
        with recorder.pause():
            gpu.queue(7.0)
        gpu.queue(0.25)
        with recorder.pause():
            clock.now += 5.0
        course.end_step(None, Loss(gpu), None)
    assert of_kind(events, "step", "seconds") == pytest.approx([0.75] * 4)
    assert course.window.seconds == pytest.approx(3 * 0.75)
    assert recorder.paused_seconds == pytest.approx(3 * 12.0)


def test_a_step_may_have_no_loss_and_an_unknown_wait_for_data(clock):
    events = []
    recorder = StepRecorder(CpuDevice(clock), clock, written_to(events), 8, True)
    course = Course(recorder, 0, 2, lambda _step: True)
    while course.window is None:
        course.end_step(None, None, None)
    assert [event["event"] for event in events] == ["step"] * 2
    assert not any("data_wait_seconds" in event for event in events)
