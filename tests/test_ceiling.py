"""Peak measurement on fake devices of known speed."""

import pytest

from perfkit.timing.devices import CpuDevice
from perfkit.timing.peak import COPIED_BYTES, COPY_SECONDS, PRODUCT_SECONDS, measure_peak


class Machine:
    """Works at known speeds on its own clock, but at half speed for 0.1 s of every 0.3 s."""

    def __init__(self, flops_per_second, bytes_per_second):
        self.speeds = flops_per_second, bytes_per_second
        self.now = 0.0
        self.calls = 0

    def clock(self):
        return self.now

    def take(self, seconds):
        self.calls += 1
        self.now += seconds * (2 if int(self.now * 10) % 3 == 2 else 1)

    def matmul(self, size):
        first = [0.05]

        def multiply():
            # The first call of a size includes loading.
            self.take(2 * size**3 / self.speeds[0] + (first.pop() if first else 0))

        return multiply

    def copy(self, size_bytes):
        return lambda: self.take(2 * size_bytes / self.speeds[1])


@pytest.mark.parametrize("flops_per_second", [1e10, 1e15])
def test_peaks_are_the_devices_speed_despite_disturbances(flops_per_second):
    machine = Machine(flops_per_second, 2.5e10)
    found = measure_peak(machine.matmul, machine.copy, CpuDevice(machine.clock), machine.clock)
    assert found["matmul_flops_per_second"] == pytest.approx(flops_per_second)
    assert found["copy_bytes_per_second"] == pytest.approx(2.5e10)


def test_sustained_rates_are_means_that_a_slower_third_of_the_time_lowers():
    machine = Machine(2e11, 2.5e10)
    peaks = measure_peak(machine.matmul, machine.copy, CpuDevice(machine.clock), machine.clock)
    # Two thirds of the time at full speed and one third at half speed, up to whole calls.
    expected = pytest.approx((2 + 0.5) / 3, abs=0.1)
    product = peaks["sustained_matmul_flops_per_second"] / 2e11
    copy = peaks["sustained_copy_bytes_per_second"] / 2.5e10
    assert (product, copy) == (expected, expected)


def test_measuring_peaks_takes_the_intended_time():
    machine = Machine(1e11, 1e10)
    measure_peak(machine.matmul, machine.copy, CpuDevice(machine.clock), machine.clock)
    intended = 1.5 * (PRODUCT_SECONDS + COPY_SECONDS)
    assert machine.now < intended + 4 * 2 * COPIED_BYTES / 1e10


class Waited(CpuDevice):
    """Takes 15 us per synchronization and counts the calls between two synchronizations."""

    def __init__(self, machine):
        super().__init__(machine.clock)
        self.machine, self.groups, self.before = machine, [], 0

    def synchronize(self):
        self.machine.now += 15e-6
        self.groups.append(self.machine.calls - self.before)
        self.before = self.machine.calls


def test_synchronization_does_not_lower_a_fast_devices_peak():
    machine = Machine(8e14, 3e12)
    device = Waited(machine)
    found = measure_peak(machine.matmul, machine.copy, device, machine.clock)
    # A copy takes 0.18 ms; timed alone, it would appear 8 % slower.
    assert found["copy_bytes_per_second"] == pytest.approx(3e12, rel=1e-3)
    assert found["matmul_flops_per_second"] == pytest.approx(8e14, rel=1e-3)
    groups = [calls for calls in device.groups if calls > 1]
    assert groups and min(groups) >= 10


def test_an_asynchronous_device_is_synchronized():
    class Asynchronous(CpuDevice):
        """Its calls only queue work; the time passes in synchronize."""

        def synchronize(self):
            machine.now += machine.pending
            machine.pending = 0.0

    machine = Machine(1e11, 1e10)
    machine.pending = 0.0

    def take(seconds):
        machine.pending += seconds

    machine.take = take
    found = measure_peak(
        machine.matmul, machine.copy, Asynchronous(machine.clock), machine.clock
    )
    assert found["matmul_flops_per_second"] == pytest.approx(1e11)
