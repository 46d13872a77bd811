"""Reasons why a request is refused. Each names its parameter, what is wrong with it, what is
allowed, and what to type instead. They are shown in terminals and notebooks, in English.

A room that refuses something of its own has its own subclasses of `Refusal`.
"""

import difflib
import math
from collections.abc import Iterable
from gettext import NullTranslations
from typing import Annotated, Any, ClassVar, Literal, Self

from perfkit.core.statements import ENGLISH, Format, Statement, Verbatim


class Refusal(Statement):
    """A reason why a request is refused, about one parameter."""

    classes: ClassVar = {}
    parameter: str
    """name of the parameter, or of the command's option"""

    def text(self, language: NullTranslations = ENGLISH) -> str:
        return f"{self.parameter}: {super().text(language)}"

    def lines(self) -> list[str]:
        """Return the text line by line; a text of several lines is a list or a table."""
        return [self.text()]


def nearest_name(name: object, names: Iterable[Any]) -> str | None:
    """Return the closest of `names` to a misspelt one; None if none is close."""
    candidates = [str(candidate) for candidate in names]
    # fp16 stands for pure_fp16 rather than bf16, which is equally close by its letters.
    longer = [candidate for candidate in candidates if candidate.endswith(f"_{name}")]
    close = longer or difflib.get_close_matches(str(name), candidates)
    return close[0] if close else None


# Values of one parameter.


class NoSuchParameter(Refusal):
    code = "no_such_parameter"
    nearest: str | None = None

    @classmethod
    def of(cls, name: str, names: Iterable[str]) -> Self:
        return cls(parameter=name, nearest=nearest_name(name, names))

    def english(self) -> str:
        if self.nearest is None:
            return (
                "no such parameter (for a variable of your own, use a name with a leading "
                "underscore)"
            )
        return (
            "no such parameter; did you mean '%(nearest)s'? (for a variable of your own, use a "
            "name with a leading underscore)"
        )


class NotAvailable(Refusal):
    code = "not_available"
    value: str
    allowed: list[str]
    nearest: str | None = None

    @classmethod
    def of(cls, parameter: str, value: object, allowed: Iterable[Any]) -> Self:
        """Refuse a `value` that is not one of the allowed words."""
        words = [str(word) for word in allowed]
        nearest = nearest_name(value, words)
        return cls(parameter=parameter, value=repr(value), allowed=words, nearest=nearest)

    def english(self) -> str:
        if self.nearest is None:
            return "%(value)s is not available; allowed: %(allowed)s"
        return "%(value)s is not available; allowed: %(allowed)s; did you mean '%(nearest)s'?"


class OutOfRange(Refusal):
    code = "out_of_range"
    value: str
    relation: Literal["ge", "gt", "le", "lt"]
    """the violated relation, as pydantic names it"""
    bound: str

    def english(self) -> str:
        match self.relation:
            case "ge":
                return "%(value)s is out of range; allowed: at least %(bound)s"
            case "gt":
                return "%(value)s is out of range; allowed: more than %(bound)s"
            case "le":
                return "%(value)s is out of range; allowed: at most %(bound)s"
            case "lt":
                return "%(value)s is out of range; allowed: less than %(bound)s"


class WrongPattern(Refusal):
    code = "wrong_pattern"
    sentence = "%(value)s; allowed: %(allowed)s"
    value: str
    allowed: str
    """the pattern in words"""


ExpectedType = Literal["int", "int_or_auto", "float", "bool", "text"]


class WrongType(Refusal):
    code = "wrong_type"
    value: str
    typed: str
    """the value as text, quoted as in a shell: papermill's -p converts what looks like a
    number"""
    expected: ExpectedType
    bounds: str = ""
    """of a number, after a space: " of at least 1" """

    def english(self) -> str:
        match self.expected:
            case "int":
                return "%(value)s is of the wrong type; allowed: a whole number%(bounds)s"
            case "int_or_auto":
                return (
                    "%(value)s is of the wrong type; allowed: a whole number%(bounds)s, or auto"
                )
            case "float":
                return "%(value)s is of the wrong type; allowed: a number%(bounds)s"
            case "bool":
                return "%(value)s is of the wrong type; allowed: True or False"
            case "text":
                return (
                    "%(value)s is of the wrong type; allowed: text (for papermill: "
                    "-r %(parameter)s %(typed)s)"
                )


class OtherFault(Refusal):
    """Any other error of a value, in pydantic's words or those of its validator."""

    code = "other_fault"
    sentence = "%(value)s: %(fault)s"
    value: str
    fault: str


# Parameters that contradict each other, the model or the framework.


class SizeMissing(Refusal):
    code = "size_missing"
    sentence = "one of them must be set"
    parameter: str = "image_size, sequence_length"


class WarmupSecondsAlone(Refusal):
    code = "warmup_seconds_alone"
    sentence = "needs warmup_limit or warmup_steps=auto"
    parameter: str = "warmup_seconds"


class WarmupLimitTooLow(Refusal):
    code = "warmup_limit_too_low"
    sentence = (
        "%(limit)s is less than warmup_steps=%(minimum)s, the minimum length of the warm-up"
    )
    parameter: str = "warmup_limit"
    limit: Verbatim
    minimum: Verbatim


class BudgetAlone(Refusal):
    code = "budget_alone"
    sentence = "needs interval_target or repeats=auto"
    parameter: str = "budget"


class TooFewRepeats(Refusal):
    code = "too_few_repeats"
    sentence = "needs at least %(fewest)s repeats: -p repeats auto, or -p repeats %(fewest)s"
    parameter: str = "interval_target"
    fewest: int


class NotFor(Refusal):
    code = "not_for"
    sentence = "'%(value)s' is not for %(what)s; allowed: %(allowed)s"
    value: str
    what: str
    """a model, or a setting such as nodes=1"""
    allowed: list[str]


class CpuOnly(Refusal):
    code = "cpu_only"
    sentence = (
        "perfkit trains %(framework)s on a CPU only; to measure it there, also on a machine "
        "with GPUs: -p device cpu, without gpus"
    )
    parameter: str = "device"
    framework: str


class PrecisionNotOnCpu(Refusal):
    code = "precision_not_on_cpu"
    sentence = (
        "'%(value)s' is not for %(framework)s on a CPU; allowed: %(allowed)s; bf16 on a CPU: "
        "-p framework torch -p precision bf16"
    )
    parameter: str = "precision"
    value: str
    framework: str
    allowed: list[str]


class AutoNeedsStrategy(Refusal):
    code = "auto_needs_strategy"
    sentence = "'auto' needs strategy=fleetx-auto"
    parameter: str = "precision"


class PresetMismatch(Refusal):
    code = "preset_mismatch"
    sentence = (
        "%(strategy)s is a preset of precision=%(preset)s, but precision=%(precision)s was "
        "requested"
    )
    parameter: str = "strategy"
    strategy: str
    preset: str
    precision: str


class ShardingAlone(Refusal):
    code = "sharding_alone"
    sentence = (
        "%(value)s divides the training among several devices, but this one has one; set gpus, "
        "or processes on a CPU, or leave sharding out"
    )
    parameter: str = "sharding"
    value: str


class ShardingNotOnCpu(Refusal):
    code = "sharding_not_on_cpu"
    sentence = (
        "perfkit does not shard %(framework)s on a CPU; to shard there: -p framework torch"
    )
    parameter: str = "sharding"
    framework: str


class NotCompiled(Refusal):
    code = "not_compiled"
    sentence = (
        "perfkit does not combine '%(value)s' with a compiled graph of %(framework)s; set "
        "execution to dynamic"
    )
    value: str
    framework: str


class SequenceTooLong(Refusal):
    code = "sequence_too_long"
    sentence = "%(model)s has %(positions)s positions; at most %(positions)s"
    parameter: str = "sequence_length"
    model: str
    positions: Verbatim


class OneProcessOnly(Refusal):
    code = "one_process_only"
    sentence = "framework=%(framework)s trains in one process; leave out nodes and processes"
    parameter: str = "processes"
    framework: str


class OneNodeOnCpu(Refusal):
    code = "one_node_on_cpu"
    sentence = (
        "%(framework)s finds other nodes' CPUs only where a machine's own name is its address "
        "in the network; perfkit measures it on the CPU of one node: leave out nodes"
    )
    parameter: str = "nodes"
    framework: str


class NoEffect(Refusal):
    code = "no_effect"
    cause: str
    """the model, or a setting such as device=cpu"""

    def english(self) -> str:
        match self.parameter:
            case "gpus":
                return (
                    "no effect with %(cause)s; for several processes on the CPU set processes"
                )
            case "processes":
                return "no effect with %(cause)s; set gpus"
        return "no effect with %(cause)s; leave it out"


class NotOfModel(Refusal):
    code = "not_of_model"
    sentence = "%(model)s does not take it, only %(models)s; leave it out"
    model: str
    models: list[str]


# A script of the user's.


class OfModelsOnly(Refusal):
    code = "of_models_only"
    nearest: str | None = None
    """the parameter of models that a misspelt name may mean"""

    def english(self) -> str:
        if self.nearest is None:
            return (
                "only for built-in models; a script decides this itself: change the script, or "
                "give it an argument: -- ARGUMENTS"
            )
        return (
            "no such parameter; %(nearest)s is only for built-in models; a script decides this "
            "itself: change the script, or give it an argument: -- ARGUMENTS"
        )


class OfScriptsOnly(Refusal):
    code = "of_scripts_only"
    sentence = "only for a script: perfkit run train.py -- ARGUMENTS"


class NotAModel(Refusal):
    code = "not_a_model"
    sentence = (
        "%(script)s is a script; perfkit run, doctor, sweep and compare --live measure one; in "
        "Python: perfkit.plan('script', {'script': '%(script)s'})"
    )
    parameter: str = "model"
    script: str


class ScriptMissing(Refusal):
    code = "script_missing"
    sentence = "names no training script: -p script train.py"
    parameter: str = "script"


class ScriptNotReadable(Refusal):
    code = "script_not_readable"
    parameter: str = "script"
    script: str
    reason: str
    nearest: str | None = None
    """another script in its folder"""

    def english(self) -> str:
        if self.nearest is None:
            return "%(script)s can't be read: %(reason)s"
        return "%(script)s can't be read: %(reason)s; did you mean '%(nearest)s'?"


class NotAScript(Refusal):
    code = "not_a_script"
    sentence = "%(script)s is no Python script; name the file that trains, which ends in .py"
    parameter: str = "script"
    script: str


class ScriptFault(Refusal):
    code = "script_fault"
    sentence = "%(script)s, line %(line)s: %(fault)s (as Python %(python)s reads it)"
    parameter: str = "script"
    script: str
    line: Verbatim
    fault: str
    python: str


class FrameworkNotImported(Refusal):
    code = "framework_not_imported"
    sentence = (
        "%(script)s and its modules import none of %(frameworks)s; name the one that trains: "
        "-p framework NAME"
    )
    parameter: str = "framework"
    script: str
    frameworks: list[str]


class SeveralFrameworks(Refusal):
    code = "several_frameworks"
    sentence = (
        "%(script)s and its modules import %(frameworks)s; name the one that trains: -p "
        "framework NAME"
    )
    parameter: str = "framework"
    script: str
    frameworks: list[str]


class BadArguments(Refusal):
    code = "bad_arguments"
    sentence = "%(value)s: %(fault)s; write them on one line and quote them as in a shell"
    parameter: str = "arguments"
    value: str
    fault: str


# What this machine lacks.


class GpusUnknown(Refusal):
    code = "gpus_unknown"
    sentence = "set the number per node; the measuring machine is unknown here"
    parameter: str = "gpus"


class DriverFails(Refusal):
    code = "driver_fails"
    sentence = "%(reason)s; to run on the CPU: -p device cpu"
    parameter: str = "gpus"
    reason: str


def _device_count(count: tuple[int, str], _language: NullTranslations) -> str:
    number, device = count
    plural = "" if number == 1 else "s"
    return f"{number} {device.upper()}{plural}"


DeviceCount = Annotated[tuple[int, str], Format(_device_count)]
"""A number of devices and their type: "1 GPU"."""


class TooFewDevices(Refusal):
    code = "too_few_devices"
    parameter: str = "gpus"
    device: str
    requested: int
    visible: DeviceCount

    def english(self) -> str:
        if self.requested == 0:
            return (
                "device=%(device)s needs at least 1; visible on this machine: %(visible)s. To "
                "run on the CPU: -p device cpu, without gpus"
            )
        return (
            "%(requested)s requested; visible on this machine: %(visible)s. To run on the CPU: "
            "-p device cpu, without gpus"
        )


class NoDriver(Refusal):
    code = "no_driver"
    sentence = (
        "no NVIDIA driver answers (NVML: %(reason)s); install the driver, or load its kernel "
        "module, until nvidia-smi lists the GPUs; in a container: docker run --gpus all"
    )
    parameter: str = "gpus"
    reason: str


class DriverWithoutGpus(Refusal):
    code = "driver_without_gpus"
    sentence = "NVIDIA's driver answers, but has no GPU; nvidia-smi must list the GPUs"
    parameter: str = "gpus"


class GpusHidden(Refusal):
    code = "gpus_hidden"
    sentence = (
        "CUDA_VISIBLE_DEVICES=%(variable)s hides %(hidden)s of this machine; unset it, or ask "
        "the scheduler that set it for more"
    )
    parameter: str = "gpus"
    variable: str
    hidden: DeviceCount


class GpusForbidden(Refusal):
    code = "gpus_forbidden"
    sentence = (
        "this process has no permission to use %(forbidden)s of this machine; to allow them in "
        "a container: docker run --gpus all"
    )
    parameter: str = "gpus"
    forbidden: DeviceCount


class NoDeviceOfType(Refusal):
    code = "no_device_of_type"
    sentence = (
        "this machine has no device=%(device)s; device types of %(framework)s here: %(types)s"
    )
    parameter: str = "device"
    device: str
    framework: str
    types: list[str]


class TooFewCores(Refusal):
    code = "too_few_cores"
    sentence = "%(requested)s requested, but there are only %(cores)s cores"
    parameter: str = "processes"
    requested: int
    cores: int


class BadInterpreter(Refusal):
    code = "bad_interpreter"
    sentence = "%(python)s: %(reason)s"
    parameter: str = "python"
    python: str
    reason: str


class PackagesMissing(Refusal):
    code = "packages_missing"
    sentence = (
        "%(python)s has no %(modules)s; to install: %(python)s -m pip install %(packages)s"
    )
    parameter: str = "python"
    python: str
    modules: list[str]
    packages: str
    """pip's options and packages, as words of a shell: names after the option for tested
    versions, or the extra with a build for GPUs"""


class FrameworkMissing(Refusal):
    code = "framework_missing"
    parameter: str = "framework"
    framework: str
    command: str
    download: str | None = None
    """what the command downloads, if it is much"""

    def english(self) -> str:
        if self.download is None:
            return "%(framework)s is not installed; to install it: %(command)s"
        return "%(framework)s is not installed; to install it (%(download)s): %(command)s"


class CpuBuild(Refusal):
    code = "cpu_build"
    sentence = (
        "this %(framework)s is a CPU build without GPU support. For a GPU build, in an "
        "environment of its own: %(command)s; to run on the CPU: -p device cpu"
    )
    parameter: str = "framework"
    framework: str
    command: str


class ArchitectureMissing(Refusal):
    code = "architecture_missing"
    sentence = (
        "this build of %(framework)s has no code for %(gpu)s (compute capability "
        "%(capability)s), only for %(architectures)s. For a build that has it, in an "
        "environment of its own: %(command)s; to run on the CPU: -p device cpu"
    )
    parameter: str = "framework"
    framework: str
    gpu: str
    capability: str
    architectures: list[str]
    command: str


class ArchitectureDropped(Refusal):
    code = "architecture_dropped"
    sentence = (
        "this build of %(framework)s has no code for %(gpu)s (compute capability "
        "%(capability)s), only for the later %(architectures)s. Older versions of "
        "%(framework)s, or its builds for an older CUDA, may have it; to run on the CPU: -p "
        "device cpu"
    )
    parameter: str = "framework"
    framework: str
    gpu: str
    capability: str
    architectures: list[str]


Mebibytes = Annotated[int, Format(lambda size, _language: f"{size / 2**20:,.0f} MiB")]
"""A number of bytes, written in MiB."""
Gibibytes = Annotated[int, Format(lambda size, _language: f"{math.ceil(size / 2**30)}g")]
"""A number of bytes, rounded up and written as Docker reads it: 2g."""


class SharedMemoryTooSmall(Refusal):
    code = "shared_memory_too_small"
    sentence = (
        "the processes of the DataLoader need %(needed)s in /dev/shm, for two batches each; "
        "free: %(free)s. In a container: docker run --shm-size %(size)s; or fewer processes: "
        "-p dataloader_workers N"
    )
    parameter: str = "dataloader_workers"
    free: Mebibytes
    needed: Mebibytes
    size: Gibibytes


class DaliMissing(Refusal):
    code = "dali_missing"
    sentence = (
        "DALI is not installed; to install it: %(command)s; to run without it: -p input "
        "dataloader"
    )
    parameter: str = "input"
    command: str


class DataMissing(Refusal):
    code = "data_missing"
    sentence = "expected %(expected)s in %(folder)s; to create sample data: %(command)s"
    parameter: str = "data_dir"
    expected: str
    folder: str
    command: str


class OtherLength(Refusal):
    code = "other_length"
    sentence = (
        "the sequences in %(folder)s have %(found)s tokens, not %(requested)s: -p "
        "sequence_length %(found)s; for sample data of %(requested)s: perfkit samples FOLDER "
        "--for %(model)s --sequence-length %(requested)s, and -p data_dir FOLDER"
    )
    parameter: str = "sequence_length"
    folder: str
    found: Verbatim
    requested: Verbatim
    model: str


class DataInvalid(Refusal):
    """The data does not fit the model, or a file of it is missing or damaged."""

    code = "data_invalid"
    sentence = "%(faults)s"
    parameter: str = "data_dir"
    faults: list[str]
    """each with its file and line"""

    def lines(self) -> list[str]:
        return [f"{self.parameter}: {fault}" for fault in self.faults]


class TooFewSamples(Refusal):
    code = "too_few_samples"
    sentence = (
        "one step of %(ranks)s x %(batch_size)s samples needs %(needed)s, but %(folder)s has "
        "%(samples)s; add data, or set a smaller batch: -p batch_size N"
    )
    parameter: str = "batch_size"
    ranks: int
    batch_size: int
    needed: int
    folder: str
    samples: int


class Unwritable(Refusal):
    code = "unwritable"
    sentence = (
        "can't write to %(folder)s (%(reason)s); choose a writable folder: -p outputs_dir "
        "FOLDER"
    )
    parameter: str = "outputs_dir"
    folder: str
    reason: str


class NoFileLocks(Refusal):
    code = "no_file_locks"
    sentence = (
        "the file system of %(folder)s has no file locks (%(reason)s); choose a folder on "
        "another one (for Lustre: mounted with -o flock): -p outputs_dir FOLDER"
    )
    parameter: str = "outputs_dir"
    folder: str
    reason: str


# Several nodes.


class LauncherMissing(Refusal):
    code = "launcher_missing"
    sentence = "%(launcher)s is not installed on this machine"
    parameter: str = "launcher"
    launcher: str


class NoAllocation(Refusal):
    code = "no_allocation"
    sentence = (
        "srun needs a Slurm allocation. Run perfkit in a batch script: sbatch --nodes "
        "%(nodes)s --exclusive …; without Slurm: -p launcher ssh -p hosts A,B"
    )
    parameter: str = "launcher"
    nodes: int


class AllocationTooSmall(Refusal):
    code = "allocation_too_small"
    sentence = "%(nodes)s requested, but this Slurm allocation has %(allocated)s"
    parameter: str = "nodes"
    nodes: int
    allocated: int


class OutsideAllocation(Refusal):
    code = "outside_allocation"
    sentence = (
        "this machine is not a node of the allocation; start perfkit on its first node: "
        "sbatch, or srun --nodes 1 --pty"
    )
    parameter: str = "launcher"


class WrongHosts(Refusal):
    code = "wrong_hosts"
    sentence = (
        "launcher=%(launcher)s with nodes=%(nodes)s needs %(nodes)s different hosts, this "
        "machine first: -p hosts A,B; given: %(hosts)s"
    )
    parameter: str = "hosts"
    launcher: str
    nodes: int
    hosts: str


class UnknownHost(Refusal):
    code = "unknown_host"
    sentence = "%(host)s: %(reason)s; check the spelling, DNS and /etc/hosts"
    parameter: str = "hosts"
    host: str
    reason: str


class NotAHost(Refusal):
    code = "not_a_host"
    sentence = "this machine is not in %(hosts)s; start perfkit on the first host"
    parameter: str = "hosts"
    hosts: str


class NotTheFirstHost(Refusal):
    code = "not_the_first_host"
    sentence = "this machine is %(host)s; list it first, or start on %(first)s"
    parameter: str = "hosts"
    host: str
    first: str


class OtherNode(Refusal):
    code = "other_node"
    sentence = "%(node)s: this Slurm job runs on %(here)s; submit it with --nodelist %(node)s"
    parameter: str = "node"
    node: str
    here: str


class NoRoute(Refusal):
    code = "no_route"
    sentence = "%(host)s: %(reason)s; check the network and its routes"
    parameter: str = "hosts"
    host: str
    reason: str
