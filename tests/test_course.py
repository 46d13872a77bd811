"""Warm-up and window of a training with known step times, a fake clock and a fake device."""

import json
import time
from inspect import signature

import pytest

from perfkit.analysis.warnings import window_disagrees
from perfkit.timing.course import Course
from perfkit.timing.devices import CpuDevice
from perfkit.timing.measuring_timer import MeasuringTimer
from perfkit.timing.recorder import LossNotFiniteError, NotSynchronizedError, StepRecorder
from perfkit.training import effective
from perfkit.training.effective import seconds_without_exchange

STEP_SECONDS = 0.5
WARMUP, MEASURED = 2, 10


class FakeClock:
    now = 1000.0

    def __call__(self):
        return self.now


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

    def __float__(self):
        self.gpu.synchronize()
        return 1.0


@pytest.fixture
def clock():
    return FakeClock()


def written_to(events):
    """Return a function that appends the events of JSON lines."""
    return lambda lines: events.extend(map(json.loads, lines))


def run(device, work, events, loss=lambda step: 1 / step):
    """Train until the window is over; `work(step)` submits a step. Returns the window."""
    on_cpu = isinstance(device, CpuDevice)
    recorder = StepRecorder(device, device.clock, written_to(events), 8, on_cpu)
    course = Course(recorder, WARMUP, lambda _step: MEASURED)
    while course.window is None:
        work(course.step + 1)
        course.end_step(None, loss(course.step + 1), None)
    return course.window


def run_on(gpu, events=None, work=None):
    queue = work or (lambda _step: gpu.queue(STEP_SECONDS))
    return run(gpu, queue, [] if events is None else events, lambda _step: Loss(gpu))


def of_kind(events, kind, field=None):
    return [event[field] if field else event for event in events if event["event"] == kind]


def test_known_step_times_are_measured_exactly_without_warm_up(clock):
    def take(step):
        clock.now += STEP_SECONDS * (10 if step <= WARMUP else 1)

    events = []
    window = run(CpuDevice(clock), take, events)
    assert window.seconds == pytest.approx(MEASURED * STEP_SECONDS)
    assert window.began + window.seconds == pytest.approx(clock())
    assert of_kind(events, "step", "step") == [*range(1, 13)]
    seconds = [5.0] * WARMUP + [STEP_SECONDS] * MEASURED
    assert of_kind(events, "step", "seconds") == pytest.approx(seconds)


def test_window_and_telemetry_use_the_same_clock():
    timed = (MeasuringTimer, CpuDevice)
    assert {signature(one).parameters["clock"].default for one in timed} == {time.perf_counter}
    clocks = [time.get_clock_info(name) for name in ("perf_counter", "monotonic")]
    assert {clock.implementation for clock in clocks} == {"clock_gettime(CLOCK_MONOTONIC)"}


def test_the_window_of_an_asynchronous_device_is_device_time(clock):
    gpu, events = FakeGpu(clock), []
    window = run_on(gpu, events)
    assert window.seconds == pytest.approx(MEASURED * STEP_SECONDS)
    assert of_kind(events, "step", "seconds") == pytest.approx([STEP_SECONDS] * 12)
    assert len(of_kind(events, "loss")) == 12
    # Peak memory is counted from the start of the window.
    assert gpu.memory_counted_from == pytest.approx(window.began)


def test_the_window_ends_with_the_last_step_not_with_prefetching(clock):
    class Prefetched(FakeGpu):
        """Its last event precedes work of another stream."""

        last = 0

        def record_event(self, result=None):
            event = super().record_event(result)
            if self.last == WARMUP + MEASURED:
                self.queue(100.0)
            return event

    gpu = Prefetched(clock)

    def take(step):
        gpu.queue(STEP_SECONDS)
        gpu.last = step

    assert run_on(gpu, work=take).seconds == pytest.approx(MEASURED * STEP_SECONDS)


def test_nothing_synchronizes_the_device_inside_the_window(clock):
    gpu, inside = FakeGpu(clock), []

    def take(_step):
        inside.append(gpu.synchronized)
        gpu.queue(STEP_SECONDS)

    run_on(gpu, work=take)
    assert len(inside) == WARMUP + MEASURED
    assert len(set(inside[WARMUP:])) == 1


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
    gpu, events = FakeGpu(clock), []

    def take(_step):
        clock.now += 0.001
        gpu.queue(STEP_SECONDS)

    window = run_on(gpu, events, take)
    steps = of_kind(events, "step", "seconds")[WARMUP:]
    assert len(steps) == MEASURED
    assert window_disagrees(window.seconds, steps) is forgotten


def test_a_nonfinite_loss_ends_the_training_and_keeps_earlier_steps(clock):
    events, losses = [], [1.0, 0.9, float("nan")]
    with pytest.raises(LossNotFiniteError, match="nan at step 3"):
        run(CpuDevice(clock), lambda _step: None, events, lambda step: losses[step - 1])
    assert of_kind(events, "loss", "value") == [1.0, 0.9]
    assert len(of_kind(events, "step")) == 3


def test_the_time_without_exchange_is_that_of_the_median_step_on_the_device(clock, monkeypatch):
    gpu, seconds = FakeGpu(clock), iter([0.3, 5.0, 0.5])
    monkeypatch.setattr(effective.time, "perf_counter", clock)
    gpu.queue(100.0)  # from the window, not counted
    measured = seconds_without_exchange(lambda: gpu.queue(next(seconds)), gpu.synchronize)
    assert measured == pytest.approx(0.5)


def test_a_pause_is_excluded_from_its_step_and_the_window_on_any_device(clock):
    """Each step takes its time before and after the pause, in which the device has other work.
    Work that was submitted before the pause belongs to the step."""
    gpu, events = FakeGpu(clock), []
    recorder = StepRecorder(gpu, clock, written_to(events), 8, False)
    course = Course(recorder, 1, lambda _step: 3)
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
    course = Course(recorder, 0, lambda _step: 2)
    while course.window is None:
        course.end_step(None, None, None)
    assert [event["event"] for event in events] == ["step"] * 2
    assert not any("data_wait_seconds" in event for event in events)
