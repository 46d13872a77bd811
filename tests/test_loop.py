"""The timer, on a fake trainer of known step time and a fake clock."""

import time
from itertools import count

import pytest

from perfkit.analysis.sanity import window_disagrees
from perfkit.frameworks.base import CpuDevice
from perfkit.worker.loop import LossNotFiniteError, NotSynchronizedError, compute_seconds, train

STEP_SECONDS = 0.5
WAIT_SECONDS = 0.25


class FakeClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class FakeTrainer:
    """Takes STEP_SECONDS of the clock for a step, ten times as long for its first two."""

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

    def zero_grad(self):
        self.calls.append(("discard",))


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

    def record_event(self):
        return max(self.busy_until, self.clock.now)

    def is_complete(self, event):
        return event <= self.clock.now

    def seconds_between(self, earlier, later):
        assert self.is_complete(later), "an event was read before the device came past it"
        return later - earlier


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
    def __init__(self, gpu):
        self.gpu = gpu

    def backward(self, batch, *, sync_gradients):
        self.gpu.queue(STEP_SECONDS * 3 / 4)
        return Loss(self.gpu)

    def update(self):
        self.gpu.queue(STEP_SECONDS / 4)

    def zero_grad(self):
        return


def batches(clock, wait=0.0):
    for number in count():
        clock.now += wait
        yield number


def into(events):
    """What writes events: to this list."""
    return lambda *written: events.extend(written)


def run(clock, trainer, device, *, wait=0.0, **changes):
    events = []
    how = {"samples_per_step": 8, "accumulate": 1, "warmup_steps": 2, "measured_steps": 10}
    how |= {"read_losses_at_once": True, "clock": clock} | changes
    window = train(trainer, batches(clock, wait), device, into(events), **how)
    return window, events


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def test_a_known_step_time_is_measured_exactly_and_warm_up_stays_out_of_the_window():
    clock = FakeClock()
    window, events = run(clock, FakeTrainer(clock), CpuDevice(clock))
    assert window.samples == 80
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    assert window.began + window.seconds == pytest.approx(clock())
    steps = of_kind(events, "step")
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert [step["seconds"] for step in steps] == pytest.approx([5.0] * 2 + [STEP_SECONDS] * 10)


def test_waiting_for_input_is_told_apart_and_belongs_to_the_step():
    clock = FakeClock()
    window, events = run(clock, FakeTrainer(clock), CpuDevice(clock), wait=WAIT_SECONDS)
    steps = of_kind(events, "step")
    assert all(step["data_wait_seconds"] == pytest.approx(WAIT_SECONDS) for step in steps)
    assert window.seconds == pytest.approx(10 * (STEP_SECONDS + WAIT_SECONDS))


def test_the_windows_clock_is_the_one_by_which_the_machine_is_looked_at():
    clocks = [time.get_clock_info(name) for name in ("perf_counter", "monotonic")]
    assert {clock.implementation for clock in clocks} == {"clock_gettime(CLOCK_MONOTONIC)"}


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
    window, events = run(clock, FakeGpuTrainer(gpu), gpu, read_losses_at_once=False)
    assert window.seconds == pytest.approx(10 * STEP_SECONDS)
    assert [s["seconds"] for s in of_kind(events, "step")] == pytest.approx([STEP_SECONDS] * 12)
    assert len(of_kind(events, "loss")) == 12


def test_nothing_synchronizes_an_asynchronous_device_inside_the_window():
    clock = FakeClock()
    gpu = FakeGpu(clock)
    inside = []

    class Watching(FakeGpuTrainer):
        def backward(self, batch, *, sync_gradients):
            inside.append(gpu.synchronized)
            return super().backward(batch, sync_gradients=sync_gradients)

    run(clock, Watching(gpu), gpu, read_losses_at_once=False, accumulate=2, announce=True)
    assert len(inside) == 24
    assert len(set(inside[4:])) == 1


@pytest.mark.parametrize(("heeded", "step"), [(1, 1), (2, 3)])
def test_a_synchronize_that_is_forgotten_ends_the_training(heeded, step):
    """Before the window, or where it ends: the host alone would have been timed."""
    clock = FakeClock()

    class Forgetful(FakeGpu):
        def synchronize(self):
            if self.synchronized < heeded:
                super().synchronize()

    gpu = Forgetful(clock)
    with pytest.raises(NotSynchronizedError, match=f"had not completed step {step}"):
        run(clock, FakeGpuTrainer(gpu), gpu, read_losses_at_once=False)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_window_that_is_not_the_sum_of_its_steps_tells_that_synchronize_was_forgotten(
    forgotten,
):
    """Also of a device that claims to be done: its own marks give it away."""
    clock = FakeClock()

    class Claiming(FakeGpu):
        def synchronize(self):
            return

        def is_complete(self, event):
            return True

        def seconds_between(self, earlier, later):
            return later - earlier

    gpu = Claiming(clock) if forgotten else FakeGpu(clock)
    window, events = run(clock, FakeGpuTrainer(gpu), gpu, wait=0.001, read_losses_at_once=False)
    steps = [step["seconds"] for step in of_kind(events, "step") if step["step"] > 2]
    assert len(steps) == 10
    assert window_disagrees(window.seconds, steps) is forgotten


def test_a_loss_that_is_not_finite_ends_the_training_and_keeps_the_steps_before_it():
    clock = FakeClock()
    trainer = FakeTrainer(clock, losses=[1.0, 0.9, float("nan")])
    events = []
    with pytest.raises(LossNotFiniteError, match="nan at step 3"):
        train(
            trainer,
            batches(clock),
            CpuDevice(clock),
            into(events),
            samples_per_step=8,
            accumulate=1,
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
            into([]),
            samples_per_step=1,
            accumulate=1,
            warmup_steps=0,
            measured_steps=3,
            read_losses_at_once=True,
            clock=clock,
        )


def test_gradients_of_all_micro_batches_are_exchanged_once_with_the_last_and_used_once():
    clock = FakeClock()
    trainer = FakeTrainer(clock)
    run(clock, trainer, CpuDevice(clock), accumulate=3, warmup_steps=1, measured_steps=1)
    assert trainer.calls == [
        ("backward", 0, False),
        ("backward", 1, False),
        ("backward", 2, True),
        ("update",),
        ("backward", 3, False),
        ("backward", 4, False),
        ("backward", 5, True),
        ("update",),
    ]


def test_waits_of_micro_batches_add_up_and_their_losses_too():
    clock = FakeClock()
    trainer = FakeTrainer(clock, losses=[0.5, 0.25, 0.125])
    window, events = run(
        clock,
        trainer,
        CpuDevice(clock),
        wait=WAIT_SECONDS,
        accumulate=4,
        warmup_steps=2,
        measured_steps=1,
    )
    steps = of_kind(events, "step")
    assert [s["data_wait_seconds"] for s in steps] == pytest.approx([4 * WAIT_SECONDS] * 3)
    assert [s["samples"] for s in steps] == [8] * 3
    assert window.samples == 8
    assert window.seconds == pytest.approx(4 * WAIT_SECONDS + STEP_SECONDS)
    # A trainer hands back shares of a step's loss, not the losses of micro-batches.
    assert [loss["value"] for loss in of_kind(events, "loss")] == [2.0, 1.0, 0.5]


def test_a_batch_event_says_that_a_step_has_all_its_batches_before_the_ranks_meet():
    clock = FakeClock()
    how = {"accumulate": 2, "warmup_steps": 1, "measured_steps": 2}
    events = []

    class Telling(FakeTrainer):
        def backward(self, batch, *, sync_gradients):
            events.append({"event": "exchange" if sync_gradients else "alone"})
            return super().backward(batch, sync_gradients=sync_gradients)

    train(
        Telling(clock),
        batches(clock),
        CpuDevice(clock),
        into(events),
        samples_per_step=8,
        read_losses_at_once=True,
        announce=True,
        clock=clock,
        **how,
    )
    kinds = ["alone", "batch", "exchange", "step", "loss"]
    assert [event["event"] for event in events] == kinds * 3
    assert [event["step"] for event in of_kind(events, "batch")] == [1, 2, 3]
    _, unannounced = run(clock, FakeTrainer(clock), CpuDevice(clock), **how)
    assert not of_kind(unannounced, "batch")


class AloneTrainer:
    """Its backward passes take known times, and it has one gradient."""

    def __init__(self, waits, seconds):
        self.waits, self.seconds = waits, iter(seconds)
        self.gradient, self.discards = 0, 0

    def backward(self, batch, *, sync_gradients):
        assert not sync_gradients, "others would be waited for"
        self.waits(next(self.seconds))
        self.gradient += 1

    def update(self):
        raise AssertionError("no parameter may change")

    def zero_grad(self):
        self.gradient, self.discards = 0, self.discards + 1


def test_compute_seconds_are_the_median_of_whole_steps_and_change_nothing():
    clock = FakeClock()

    def take(seconds):
        clock.now += seconds

    trainer = AloneTrainer(take, [0.1, 0.2, 5.0, 0.4, 0.3, 0.2])
    device = CpuDevice(clock)
    seconds = compute_seconds(
        trainer, batches(clock, WAIT_SECONDS), device, accumulate=2, clock=clock
    )
    # Steps of 0.3, 5.4 and 0.5 s, and two batches waited for in each.
    assert seconds == pytest.approx(0.5 + 2 * WAIT_SECONDS)
    assert (trainer.gradient, trainer.discards) == (0, 3)


def test_compute_seconds_on_an_asynchronous_device_are_the_devices_time():
    clock = FakeClock()
    gpu = FakeGpu(clock)
    gpu.queue(100.0)  # of the window: not to be counted
    trainer = AloneTrainer(gpu.queue, [0.5] * 3)
    seconds = compute_seconds(trainer, batches(clock), gpu, accumulate=1, clock=clock)
    assert seconds == pytest.approx(0.5)
