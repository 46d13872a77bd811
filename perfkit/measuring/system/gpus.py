"""The NVIDIA GPUs visible to this process, through NVML: without CUDA, and without starting
anything on the GPUs. Functions raise NVML's own error if there is no driver or a GPU does not
support a query."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# CPU workers may lack pynvml.
with contextlib.suppress(ModuleNotFoundError):
    import pynvml

REASONS = (
    *("idle", "application_clocks", "power_cap", "hardware_slowdown", "sync_boost"),
    *("software_thermal", "hardware_thermal", "power_brake", "display_clocks"),
)
"""NVML's reasons for a GPU clock below its maximum, from the lowest bit."""
ARCHITECTURE = r"(sm|compute)_(\d{2,3})([af]?)"
ESCAPES = r"\x1b\[[0-9;]*[A-Za-z]"
"""Terminal escape sequences, which nvidia-smi prints even without a terminal."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Initialize NVML and shut it down on exit; also a decorator of functions. Raises
    pynvml.NVMLError without a driver."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible_gpus() -> list[str]:
    """Return the labels of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; none without a
    driver. Raises OSError if the driver fails."""
    try:
        with session():
            return [*_selected()]
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as error:
        raise OSError(f"NVIDIA's driver fails (NVML: {error})") from error


class Unseen(NamedTuple):
    """Why no more GPUs are visible: NVML's error, if no driver answers; how many GPUs of this
    machine the process may not use, as in a container with some of them; how many
    CUDA_VISIBLE_DEVICES hides."""

    error: str = ""
    forbidden: int = 0
    hidden: int = 0


def unseen() -> Unseen:
    try:
        with session():
            permitted = len(_permitted())
            forbidden = pynvml.nvmlDeviceGetCount() - permitted
            return Unseen(forbidden=forbidden, hidden=permitted - len(_selected()))
    except pynvml.NVMLError as error:
        return Unseen(str(error))


@session()
def visible_names() -> list[str]:
    """Return name and memory of each visible GPU, in the order of the labels."""
    return [_name(handle) for handle in visible_handles().values()]


@session()
def compute_capabilities() -> list[str]:
    """Return the compute capability of each visible GPU, such as "9.0", in the order of the
    labels."""
    capabilities = []
    for handle in visible_handles().values():
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        capabilities.append(f"{major}.{minor}")
    return capabilities


def runs_on(architecture: str, capability: str) -> bool:
    """Return whether code for an architecture runs on a GPU of a compute capability.

    Machine code (`sm_86`) runs from its own minor version on within its major version; the
    driver compiles PTX (`compute_86`) for all later GPUs. With the suffix f, both stay within
    the major version, with a on one capability (CUDA's programming guide, compute
    capabilities).
    """
    named = re.fullmatch(ARCHITECTURE, architecture)
    if not named:
        return False
    kind, number, suffix = named.groups()
    oldest, wanted = int(number), int(capability.replace(".", ""))
    if suffix == "a":
        return wanted == oldest
    is_later = wanted >= oldest
    if kind == "compute" and not suffix:
        return is_later
    return is_later and wanted // 10 == oldest // 10


def topology(printed: str) -> str:
    """Return the matrix in the output of `nvidia-smi topo -m`, without the legend below it."""
    return re.sub(ESCAPES, "", printed).partition("\n\n")[0]


def near_cores(count: int) -> list[list[int]]:
    """Return the cores near each of the first `count` visible GPUs that this process may use,
    all of these where none is near; [] if NVML does not tell."""
    allowed = os.sched_getaffinity(0)
    words = (max(allowed) + 64) // 64
    cores = []
    try:
        with session():
            for handle in [*visible_handles().values()][:count]:
                masks = pynvml.nvmlDeviceGetCpuAffinity(handle, words)
                near = {
                    64 * word + bit
                    for word, mask in enumerate(masks)
                    for bit in range(64)
                    if mask >> bit & 1
                }
                # NVML ignores the cores that the process was bound to, by Slurm for example.
                cores.append(sorted(near & allowed or allowed))
    except pynvml.NVMLError:
        return []
    return cores


def core_ranges(cores: set[int]) -> str:
    """Return `0-3,8` for the cores 0, 1, 2, 3 and 8."""
    ordered = sorted(cores)
    starts = [core for core in ordered if core - 1 not in cores]
    ends = [core for core in ordered if core + 1 not in cores]
    ranges = []
    for start, end in zip(starts, ends, strict=True):
        ranges.append(str(start) if start == end else f"{start}-{end}")
    return ",".join(ranges)


@session()
def driver() -> str:
    """Return the driver's version."""
    return str(pynvml.nvmlSystemGetDriverVersion())


def select(variable: str | None, uuids: list[str]) -> dict[str, int]:
    """Map each label in `variable` (CUDA_VISIBLE_DEVICES) to the index of its GPU.

    A label is an index or the beginning of a UUID. A MIG instance counts as a separate GPU and
    gets index 0, since its name does not contain the GPU. Like CUDA, stop at the first label
    without a GPU.
    """
    if variable is None:
        return {str(index): index for index in range(len(uuids))}
    selected: dict[str, int] = {}
    for part in variable.split(","):
        label = part.strip()
        index = _index(label, uuids)
        if index is None:
            break
        selected[label] = index
    return selected


def _index(label: str, uuids: list[str]) -> int | None:
    """Return the index of the GPU with this label; None if there is none."""
    if label.isdigit() and int(label) < len(uuids):
        return int(label)
    if label.startswith("MIG-") and uuids:
        return 0
    if label.startswith("GPU-"):
        for index, uuid in enumerate(uuids):
            if uuid.startswith(label):
                return index
    return None


def _clock(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)


def _temperature(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)


def _throttled(handle: Any) -> list[str]:
    # The function's older name, which every driver supports.
    bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    reasons = []
    for bit, name in enumerate(REASONS):
        if name != "idle" and bits & 1 << bit:
            reasons.append(name)
    return reasons


def _energy(handle: Any) -> float:
    """Return joules since the driver was loaded."""
    millijoules: int = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    return millijoules / 1e3


def _memory(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


class GpuFact(NamedTuple):
    """A fact of a GPU that explains its speed, in words."""

    text: str
    is_usual: bool = True
    """whether it does not make the GPU slower than its datasheet"""


def _power_limit(handle: Any) -> GpuFact:
    limit = pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    text = f"power limit {limit // 1000} W"
    default = limit
    with contextlib.suppress(pynvml.NVMLError):
        default = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
    if limit < default:
        text += f", default {default // 1000} W"
    return GpuFact(text, limit >= default)


def _clocks(handle: Any) -> GpuFact:
    highest = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    return GpuFact(f"SM clock {_clock(handle)} of {highest} MHz")


def _ecc(handle: Any) -> GpuFact:
    enabled, _after_reboot = pynvml.nvmlDeviceGetEccMode(handle)
    return GpuFact(f"ECC {'on' if enabled else 'off'}")


def _persistence(handle: Any) -> GpuFact:
    enabled = pynvml.nvmlDeviceGetPersistenceMode(handle)
    return GpuFact(f"persistence mode {'on' if enabled else 'off'}")


def _throttling(handle: Any) -> GpuFact:
    reasons = _throttled(handle)
    return GpuFact(f"throttled by {', '.join(reasons) or 'nothing'}", not reasons)


def facts_of_speed() -> dict[str, list[GpuFact]]:
    """Return label -> what NVML tells of each visible GPU; nothing without a driver."""
    facts: dict[str, list[GpuFact]] = {}
    try:
        with session():
            for label, handle in visible_handles().items():
                facts[label] = [*_facts(handle)]
    except pynvml.NVMLError:
        return {}
    return facts


def _facts(handle: Any) -> Iterator[GpuFact]:
    for read in (_power_limit, _clocks, _ecc, _persistence, _throttling):
        with contextlib.suppress(pynvml.NVMLError):
            yield read(handle)


class GpuSensor(NamedTuple):
    """A reading of a GPU: its name, its field in a sample, and how it is read within a
    `session`, given the GPU's handle."""

    name: str
    field: str
    read: Callable[[Any], Any]


SENSORS = (
    GpuSensor("gpu_clock", "clock_mhz", _clock),
    GpuSensor("gpu_temperature", "temperature_celsius", _temperature),
    GpuSensor("gpu_throttling", "throttled", _throttled),
    GpuSensor("gpu_energy", "energy_joules", _energy),
    GpuSensor("gpu_memory", "memory_used_bytes", _memory),
)


def visible_handles() -> dict[str, Any]:
    """Return label -> NVML handle of the GPU or MIG instance; within a `session`."""
    handles = _selected()
    for label in handles:
        if label.startswith("MIG-"):
            handles[label] = pynvml.nvmlDeviceGetHandleByUUID(label)
    return handles


def _selected() -> dict[str, Any]:
    """Return label -> NVML handle of the GPU, of any GPU for a MIG instance; within a
    `session`."""
    handles = _permitted()
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    selected = select(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    return {label: handles[index] for label, index in selected.items()}


def _permitted() -> list[Any]:
    """Return the NVML handles of the GPUs that this process may use. NVML counts those outside
    a container's device group, too; CUDA does not, and numbers the others from 0."""
    handles = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with contextlib.suppress(pynvml.NVMLError_NoPermission):
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
    return handles


def _name(handle: Any) -> str:
    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    except pynvml.NVMLError_NotSupported:
        # GPUs that share the host's memory have no size.
        return str(name)
    return f"{name}, {memory} GiB"
