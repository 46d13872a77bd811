"""The timer, on a fake trainer of known step time and a fake clock."""

from itertools import count

import pytest

from perfkit.loop import CpuDevice, LossNotFiniteError, train

STEP_SECONDS = 0.5
WAIT_SECONDS = 0.25


class FakeClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class FakeTrainer:
    """Takes STEP_SECONDS of the clock, ten times as long in its first two steps."""

    def __init__(self, clock, losses=None):
        self.clock, self.losses, self.steps = clock, losses, 0

    def step(self, batch):
        self.steps += 1
        self.clock.now += STEP_SECONDS * (10 if self.steps <= 2 else 1)
        return self.losses[self.steps - 1] if self.losses else 1 / self.steps


class FakeGpu:
    """Work is queued by the host in no time and done one step after the other."""

    def __init__(self, clock):
        self.clock, self.busy_until = clock, clock.now
        self.synchronized = 0

    def queue(self, seconds):
        self.busy_until = max(self.busy_until, self.clock.now) + seconds

    def synchronize(self):
        self.synchronized += 1
        self.clock.now = max(self.clock.now, self.busy_until)

    def mark(self):
        return max(self.busy_until, self.clock.now)

    def passed(self, mark):
        return mark <= self.clock.now

    def seconds_between(self, earlier, later):
        assert self.passed(later), "an event was read before the device came past it"
        return later - earlier


class Loss:
    """A loss on the device: reading it waits for the device."""

    def __init__(self, gpu):
        self.gpu = gpu

    def __float__(self):
        self.gpu.synchronize()
        return 1.0


class FakeGpuTrainer:
    def __init__(self, gpu):
        self.gpu = gpu

    def step(self, batch):
        self.gpu.queue(STEP_SECONDS)
        return Loss(self.gpu)


def batches(clock, wait=0.0):
    for number in count():
        clock.now += wait
        yield number


def run(clock, trainer, device, *, wait=0.0, warmup_steps=2, measured_steps=10, at_once=True):
    events = []
    window = train(
        trainer,
        batches(clock, wait),
        device,
        events.append,
        samples=8,
        warmup_steps=warmup_steps,
        measured_steps=measured_steps,
        read_losses_at_once=at_once,
        clock=clock,
    )
    return window, events


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def test_a_known_step_time_is_measured_exactly_and_warm_up_stays_out_of_the_window():
    clock = FakeClock()
    window, events = run(clock, FakeTrainer(clock), CpuDevice(clock))
    assert window.samples == 80
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    steps = of_kind(events, "step")
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert [step["seconds"] for step in steps] == pytest.approx([5.0] * 2 + [STEP_SECONDS] * 10)


def test_waiting_for_input_is_told_apart_and_belongs_to_the_step():
    clock = FakeClock()
    window, events = run(clock, FakeTrainer(clock), CpuDevice(clock), wait=WAIT_SECONDS)
    steps = of_kind(events, "step")
    assert all(step["data_wait_seconds"] == pytest.approx(WAIT_SECONDS) for step in steps)
    assert window.seconds == pytest.approx(10 * (STEP_SECONDS + WAIT_SECONDS))


def test_on_a_cpu_the_steps_add_up_to_the_window():
    clock = FakeClock()
    window, events = run(clock, FakeTrainer(clock), CpuDevice(clock), wait=WAIT_SECONDS)
    measured = [step["seconds"] for step in of_kind(events, "step") if step["step"] > 2]
    assert sum(measured) == pytest.approx(window.seconds)


def test_without_warm_up_every_step_is_measured():
    clock = FakeClock()
    window, _ = run(
        clock, FakeTrainer(clock), CpuDevice(clock), warmup_steps=0, measured_steps=3
    )
    assert window.seconds == pytest.approx(5 + 5 + STEP_SECONDS)


def test_on_an_asynchronous_device_the_window_is_the_devices_time():
    clock = FakeClock()
    gpu = FakeGpu(clock)
    window, events = run(clock, FakeGpuTrainer(gpu), gpu, at_once=False)
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    assert [s["seconds"] for s in of_kind(events, "step")] == pytest.approx([STEP_SECONDS] * 12)
    assert len(of_kind(events, "loss")) == 12


def test_nothing_synchronizes_an_asynchronous_device_inside_the_window():
    clock = FakeClock()
    gpu = FakeGpu(clock)
    inside = []

    class Watching(FakeGpuTrainer):
        def step(self, batch):
            inside.append(gpu.synchronized)
            return super().step(batch)

    run(clock, Watching(gpu), gpu, at_once=False)
    assert len(set(inside[2:])) == 1


def test_a_loss_that_is_not_finite_ends_the_training_and_keeps_the_steps_before_it():
    clock = FakeClock()
    trainer = FakeTrainer(clock, losses=[1.0, 0.9, float("nan")])
    events = []
    with pytest.raises(LossNotFiniteError, match="nan at step 3"):
        train(
            trainer,
            batches(clock),
            CpuDevice(clock),
            events.append,
            samples=8,
            warmup_steps=1,
            measured_steps=5,
            read_losses_at_once=True,
            clock=clock,
        )
    assert [event["value"] for event in of_kind(events, "loss")] == [1.0, 0.9]
    assert len(of_kind(events, "step")) == 3


def test_an_input_that_ends_is_an_error():
    clock = FakeClock()
    with pytest.raises(StopIteration):
        train(
            FakeTrainer(clock),
            iter([0, 1]),
            CpuDevice(clock),
            [].append,
            samples=1,
            warmup_steps=0,
            measured_steps=3,
            read_losses_at_once=True,
            clock=clock,
        )
