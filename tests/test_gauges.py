"""What the kernel tells of a machine, on /proc and /sys made by hand."""

import os

import pytest

from perfkit.machine import gauges
from perfkit.machine.gauges import NotToldError, Tree

TICKS = gauges.TICKS_A_SECOND


@pytest.fixture
def write(tmp_path):
    """Write a file below the root, which is tmp_path."""

    def written(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return written


@pytest.fixture
def process(write):
    """Make or change a process: its CPU time in seconds, of itself and of ended children."""

    def made(pid, parent, module="bash", seconds=0, children_seconds=0, started=1):
        own, children = round(seconds * TICKS), round(children_seconds * TICKS)
        fields = f"S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {started} 0 0"
        write(f"proc/{pid}/stat", f"{pid} (a (strange) name) {fields}")
        write(f"proc/{pid}/cmdline", f"python\0-m\0{module}\0rest\0")

    return made


@pytest.fixture
def crew(process):
    """A supervisor 10, its launcher 11, a rank 12, and a process 5 of someone else's."""
    process(5, 1, seconds=1000)
    process(10, 5, "perfkit.nodes.supervisor", seconds=1)
    process(11, 10, "paddle.distributed.launch", seconds=2)
    process(12, 11, "perfkit.worker.rank", seconds=30)


def remove(root, pid):
    for name in ("stat", "cmdline"):
        (root / f"proc/{pid}/{name}").unlink()
    (root / f"proc/{pid}").rmdir()


def values(found):
    return {(gauge.what, gauge.device): gauge.read() for gauge in found}


def test_cpu_time_is_that_of_the_usable_cores_without_interrupts_and_waiting(write, tmp_path):
    row = "{} 100 20 3 4000 500 60 7 {} 0 0\n"
    write("proc/stat", row.format("cpu ", 9) + row.format("cpu1", 8) + row.format("cpu10", 5))
    assert gauges.core_seconds(tmp_path, [10]) == {
        "busy_seconds": 123 / TICKS,
        "stolen_seconds": 5 / TICKS,
    }


def test_a_core_that_a_container_hides_is_not_taken_for_an_idle_one(write, tmp_path):
    write("proc/stat", "cpu0 1 1 1 1 1 1 1 1 0 0\n")
    with pytest.raises(NotToldError, match="does not have every usable core"):
        gauges.core_seconds(tmp_path, [0, 1])


def test_the_processes_of_a_repeat_are_found_from_its_rank(crew, process, tmp_path):
    process(13, 12, seconds=4)
    process(14, 13, seconds=5)
    assert Tree(tmp_path, 12).seconds() == 1 + 2 + 30 + 4 + 5


def test_children_that_come_later_are_counted_and_those_of_others_are_not(
    crew, process, tmp_path
):
    tree = Tree(tmp_path, 12)
    tree.seconds()
    process(13, 12, seconds=4)
    process(20, 5, seconds=500)
    process(21, 20, seconds=500)
    assert tree.seconds() == 37


def test_the_time_of_a_child_that_has_ended_is_its_parents(crew, process, tmp_path):
    process(13, 12, seconds=4)
    tree = Tree(tmp_path, 12)
    assert tree.seconds() == 37
    remove(tmp_path, 13)
    process(12, 11, "perfkit.worker.rank", seconds=30, children_seconds=4)
    assert tree.seconds() == 37
    remove(tmp_path, 12)
    process(11, 10, seconds=2, children_seconds=34)
    assert tree.seconds() == 37


def test_a_process_that_took_an_ended_ones_number_is_not_counted(crew, process, tmp_path):
    process(13, 12, seconds=4)
    tree = Tree(tmp_path, 12)
    tree.seconds()
    process(13, 5, seconds=500, started=2)
    assert [tree.seconds(), tree.seconds()] == [33, 33]
    process(10, 5, "perfkit.nodes.supervisor", seconds=1, started=2)
    with pytest.raises(NotToldError, match="the supervisor has ended"):
        tree.seconds()


@pytest.mark.parametrize("rank", [5, 99])
def test_a_number_that_is_no_rank_of_this_machine_is_refused(crew, rank, tmp_path):
    with pytest.raises((NotToldError, FileNotFoundError)):
        Tree(tmp_path, rank)


def test_a_rank_that_no_supervisor_of_this_machine_watches_is_refused(process, tmp_path):
    process(12, 1, "perfkit.worker.rank")
    with pytest.raises(FileNotFoundError):
        Tree(tmp_path, 12)


def test_the_clock_is_the_mean_of_the_cores(write, tmp_path):
    for core, khz in ((0, 2_000_000), (3, 3_000_000)):
        write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{khz}\n")
    assert values(gauges.cpu_clock(tmp_path, [0, 3])) == {("clock_mhz", "cpu"): 2500.0}


def test_throttling_is_counted_over_cores_and_package(write, tmp_path):
    for part, count in (("core", 3), ("package", 40)):
        path = f"sys/devices/system/cpu/cpu0/thermal_throttle/{part}_throttle_count"
        write(path, f"{count}\n")
    assert values(gauges.cpu_throttling(tmp_path, [0])) == {("throttle_count", "cpu"): 43}


def test_the_temperature_is_the_hottest_packages_and_not_a_disks(write, tmp_path):
    sensors = (("nvme", 90_000), ("coretemp", 61_000), ("coretemp", 64_000))
    for index, (name, millidegrees) in enumerate(sensors):
        write(f"sys/class/hwmon/hwmon{index}/name", f"{name}\n")
        write(f"sys/class/hwmon/hwmon{index}/temp1_input", f"{millidegrees}\n")
    assert values(gauges.cpu_temperature(tmp_path)) == {("temperature_celsius", "cpu"): 64.0}


def test_energy_is_of_packages_and_memory_and_nothing_is_counted_twice(write, tmp_path):
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    for index, (zone, name) in enumerate(zones.items(), 1):
        write(f"sys/class/powercap/{zone}/name", f"{name}\n")
        write(f"sys/class/powercap/{zone}/energy_uj", f"{index}000000\n")
        write(f"sys/class/powercap/{zone}/max_energy_range_uj", f"{index}00000000\n")
    assert values(gauges.cpu_energy(tmp_path)) == {
        ("energy_joules", "package-0"): 1.0,
        ("energy_joules", "dram-0"): 3.0,
    }
    assert gauges.energy_wraps(tmp_path) == {"package-0": 100.0, "dram-0": 300.0}


def test_a_machine_that_tells_nothing_says_of_each_thing_why(tmp_path):
    for source in (gauges.cpu_clock, gauges.cpu_throttling):
        with pytest.raises(NotToldError, match="under /sys/devices/system/cpu"):
            source(tmp_path, [0])
    with pytest.raises(NotToldError, match="under /sys/class/hwmon"):
        gauges.cpu_temperature(tmp_path)
    with pytest.raises(NotToldError, match="no RAPL under /sys/class/powercap"):
        gauges.cpu_energy(tmp_path)


def test_this_machines_own_cpu_time_grows():
    cores = sorted(os.sched_getaffinity(0))
    before = gauges.core_seconds(gauges.Path("/"), cores)["busy_seconds"]
    sum(range(3_000_000))
    assert gauges.core_seconds(gauges.Path("/"), cores)["busy_seconds"] > before > 0
