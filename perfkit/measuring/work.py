"""What is trained: a built-in model, a script of the user's, or any command, timed by its log.
All answer the same questions, so that nothing else asks which of them it is."""

import json
import shlex
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field

from perfkit.inputs.data_set import DataSet, data_set_class, examine
from perfkit.measuring.about import (
    BY_DALI,
    BY_DATALOADER,
    CONTENT,
    IN_SIZES,
    OF_IMAGES,
    OF_LLAMA,
    OF_PLACE,
    OF_SEQUENCES,
    ON_GPU,
    OWN_CHOICE,
    RUN,
    STRICT,
    About,
    LocalPath,
)
from perfkit.measuring.driver.settings import cpu_settings, dali_settings, gpu_settings
from perfkit.measuring.paths import stored_path
from perfkit.measuring.request.command_files import read_command, with_flags
from perfkit.measuring.request.script import read_script, script_digest
from perfkit.measuring.results.effective import Effective, Told, noted_settings
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.system.environment import cpu_vendor, usable_cores
from perfkit.measuring.system.gpus import near_cores
from perfkit.timing.failure import portable
from perfkit.training.frameworks import AFFINITY
from perfkit.training.models import Model, model_named, training_flops, units_per_sample
from perfkit.training.options import Options, options

if TYPE_CHECKING:
    from perfkit.measuring.config import Config

SCRIPT = "script"
"""What `perfkit.plan` and the notebooks call a script, in place of a model's name."""
COMMAND = "command"
"""What they call a command."""
SCRIPT_SUFFIXES = (".py", ".sh")
SHA256 = r"^[0-9a-f]{64}$"
NAMES = r"^([a-z_]+(,[a-z_]+)*)?$"
MOST_CHARACTERS = 4000
"""Longest line of arguments."""
SHOWN_DIGITS = 12
"""Digits of a digest that are shown."""
ALL = "all"
UNTOLD_UNIT = "samples/s"
"""Unit of a script that has not told its own."""
OF_INPUT = {"dali": ["nvidia.dali", "PIL"], "dataloader": ["PIL", "h5py"], "synthetic": []}
"""Input -> modules that it imports."""

ModelName = Literal["resnet50", "vgg16", "bert", "gpt", "llama"]
ModelSize = Literal["124M", "355M", "774M", "1558M", "tiny", "1b", "8b"]
Precision = Literal["fp32", "amp", "pure_fp16", "bf16", "auto"]
Execution = Literal["dynamic", "static"]
Optimizer = Literal["momentum", "adamw", "lamb"]
Layout = Literal["NCHW", "NHWC"]
Sharding = Literal["none", "gradients", "full"]
Recompute = Literal["none", "full"]
Strategy = Literal[
    "none", "fleetx-fp32", "fleetx-amp", "fleetx-auto", "fleetx-vgg16-fp32", "fleetx-vgg16-amp"
]


@dataclass(frozen=True)
class Counts:
    """In which unit the throughput of a work counts. A sample counts as `units_per_sample` of
    the unit. `samples_per_step` are those of one rank. `flops_per_unit`, of forward and
    backward pass, and the number of trainable `parameters` are None if a script has not told
    them, `samples_per_step` is None before it has. A script's unit is untrusted text."""

    unit: str
    units_per_sample: int
    samples_per_step: int | None
    flops_per_unit: float | None
    parameters: int | None


class ModelWork(BaseModel):
    """A built-in model: everything that defines the work. None means not applicable
    (`image_size` of bert)."""

    model_config = STRICT
    defaults: ClassVar[dict[str, tuple[Any, str]]] = {
        "framework": ("paddle", "training framework")
    }
    """parameter of Config -> its default for a model, and its meaning"""
    reported: ClassVar = ("precision", "tf32", "threads", "parameters", "input_sha256")
    """what the ranks report and measurements must agree in"""
    launches_itself: ClassVar = False
    """whether it starts its own ranks, on all nodes"""
    sign_of_step: ClassVar = "a call of timer.step"
    """what a step of it is known by"""

    model: ModelName
    """the model to train"""
    precision: Precision = "fp32"
    """number format of the training: amp is O1 and pure_fp16 O2 with float16, bf16 is O1 with
    bfloat16; auto leaves it to strategy=fleetx-auto"""
    tf32: Annotated[bool, About(only=ON_GPU)] = False
    """allow a GPU's tensor cores to round fp32 factors to TF32"""
    execution: Annotated[Execution, OWN_CHOICE]
    """how the graph is executed; static: compiled by to_static, torch.compile, jit, XLA or
    hybridize; None: dynamic, static for jax and mxnet"""
    strategy: Annotated[Strategy, OWN_CHOICE] = "none"
    """preset of distributed-training options"""
    sharding: Annotated[Sharding, OF_LLAMA] = "none"
    """what the devices divide among them; gradients (ZeRO-2): a device gathers all weights for
    forward and backward pass; full (ZeRO-3): those of one layer at a time; none: each device
    has all"""
    recompute: Annotated[Recompute, OF_LLAMA] = "none"
    """activations to compute again in the backward pass; full: all within a layer"""
    model_size: Annotated[ModelSize | None, About(verified=True, only=IN_SIZES)] = None
    """size of the model; None: 124M of gpt, 1b of llama, on a CPU tiny"""
    optimizer: Annotated[Optimizer, About(verified=True)]
    """optimizer; None: momentum for images, adamw for sequences; lamb: bert only"""
    layout: Annotated[Layout | None, replace(OWN_CHOICE, only=OF_IMAGES)]
    """memory layout of images; None: NHWC for torch, jax, tensorflow, and for paddle on a GPU
    with a precision below fp32, otherwise NCHW"""
    batch_size: Annotated[int, Field(ge=1, le=65536), About(verified=True)]
    """samples per device and micro-batch; None: a default for model and device"""
    accumulate: Annotated[int, Field(ge=1, le=65536)] = 1
    """micro-batches per optimizer step"""
    image_size: Annotated[
        int | None, Field(ge=32, le=1024), About(verified=True, only=OF_IMAGES)
    ]
    """height and width of the images, pixels; None: 224"""
    sequence_length: Annotated[
        int | None, Field(ge=16, le=32_768), About(verified=True, only=OF_SEQUENCES)
    ]
    """tokens per sequence; None: 128, on a GPU 1024 for gpt, 8192 for llama"""
    seed: Annotated[int, Field(ge=0, lt=2**31), About(verified=True)] = 0
    """random seed of weights, dropout, synthetic batches and the order of samples; with DALI
    also of the crops"""
    disable_tuning: Annotated[str, Field(pattern=NAMES), replace(OWN_CHOICE, only=ON_GPU)] = ""
    """GPU settings to leave at the framework's defaults, comma-separated; all: all of them"""

    input: Literal["dali", "dataloader", "synthetic"]
    """source of the batches; None: dali for images, dataloader for sequences"""
    data_dir: Annotated[LocalPath, About(compared="show", key="input_sha256", is_path=True)]
    """folder of the data set; None: data/samples, data/sequences for bert, data/tokens for gpt,
    data/llama-tokens for llama"""
    dali_threads: Annotated[int, Field(ge=0, le=256), BY_DALI]
    """DALI's CPU threads per device; 0: by the cores per GPU; None: 4 on a CPU, 0 on a GPU"""
    dali_prefetch: Annotated[int, Field(ge=0, le=64), BY_DALI]
    """batches that DALI prefetches; 0: by the cores per GPU; None: 2 on a CPU, 0 on a GPU"""
    dali_decoder: Annotated[
        Literal["image", "image_random_crop"], replace(BY_DALI, unset="auto")
    ] = "image_random_crop"
    """DALI's decoder; auto: image on a GPU, image_random_crop on a CPU"""
    dali_hw_decoder_load: Annotated[
        float, Field(ge=0, le=1), About(only={"input": ("dali",), "device": ("gpu",)})
    ] = 0.65
    """share of the images for the hardware decoder (GPU)"""
    dali_crop_attempts: Annotated[int, Field(ge=1, le=1000), BY_DALI] = 100
    """attempts to find a random crop within limits of area and aspect"""
    dali_device_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 211_025_920
    """preallocated nvJPEG device memory, bytes (GPU)"""
    dali_host_padding: Annotated[int, Field(ge=0, le=2**33), BY_DALI] = 140_544_512
    """preallocated nvJPEG pinned memory, bytes (GPU)"""
    # Not 0: without worker processes, Paddle's DataLoader hangs after an error.
    dataloader_workers: Annotated[int, Field(ge=1, le=256), BY_DATALOADER] = 4
    """processes (TensorFlow: threads) of the framework's DataLoader"""

    @property
    def word(self) -> str:
        """What `perfkit.plan` and the notebooks call the work."""
        return self.model

    @property
    def name(self) -> str:
        """Its name in rows and tables."""
        return self.model

    @property
    def short_title(self) -> str:
        """Its name for display."""
        return self.facts.short_name

    @property
    def facts(self) -> Model:
        """The facts of the model; None of a script."""
        return model_named(self.model, self.model_size)

    @property
    def built_in(self) -> "ModelWork":
        """The built-in model. Raises TypeError for a script."""
        return self

    @property
    def samples_per_step(self) -> int:
        """Samples per optimizer step of one rank."""
        return self.batch_size * self.accumulate

    @property
    def sample_size(self) -> int:
        """Height and width of an image, pixels, or tokens of a sequence."""
        size = self.image_size or self.sequence_length
        assert size
        return size

    @property
    def data_folder(self) -> Path:
        """The folder of the data set as an absolute path; None if perfkit does not know it."""
        return stored_path(self.data_dir)

    @property
    def has_sample_data(self) -> bool:
        """Whether the data set is where `perfkit samples` makes one."""
        return self.data_dir == self.facts.data_dir

    @property
    def data_sha256(self) -> str | None:
        """The digest of the data set, quickly, without checks; None without a data set."""
        if self.input == "synthetic":
            return None
        try:
            return data_set_class(self).digest(self.data_folder)
        except OSError:
            return None

    def examine(self, config: "Config") -> DataSet | None:
        """Check the data set and return it; None without one. Raises InputError."""
        return None if self.input == "synthetic" else examine(self.options(config))

    @property
    def working_folder(self) -> Path | None:
        """The folder in which the ranks must run; None: any."""
        return None

    @property
    def is_sharded(self) -> bool:
        """Whether weights, gradients and optimizer states are divided among the ranks."""
        return self.sharding != "none"

    @property
    def disabled_tuning(self) -> set[str]:
        return {*self.disable_tuning.split(",")} - {""}

    def counts(self, _told: Told | None = None) -> Counts:
        """Return what the throughput counts; of a script, with what it has told."""
        return Counts(
            unit=self.facts.unit,
            units_per_sample=units_per_sample(self),
            samples_per_step=self.samples_per_step,
            flops_per_unit=training_flops(self),
            parameters=self.facts.parameters,
        )

    def effective(self, told: Told, notes: dict[str, Any]) -> Effective | None:
        """Return the effective settings that a rank has told and noted; None of a script."""
        return noted_settings(told, notes)

    def stored_told(self, _told: Told) -> Told | None:
        """Return what is stored of what the ranks told the timer: all of a script, nothing of
        a model, of which perfkit knows it."""
        return None

    def options(self, config: "Config") -> Options:
        """Return the options of the training script, which the inputs take."""
        asked = self.model_dump() | {"data_dir": str(self.data_folder)}
        place = {name: getattr(config, name) for name in ("framework", "device", "devices")}
        names = {each.name for each in options()}
        values = {name: value for name, value in asked.items() if name in names}
        return Options(**place | values, ranks=config.ranks)

    def script_words(self, config: "Config", task: str = "measure") -> list[str]:
        """Return the words after `python` that run the work by its script."""
        script = "verify" if task == "verify" else "train"
        cores = usable_cores() // config.devices
        chosen = dali_settings(self.dali_threads, self.dali_prefetch, cores)
        work = self.model_copy(update=chosen | {"data_dir": str(self.data_folder)})
        module = f"perfkit.training.{config.framework}.{script}"
        return ["-m", module, *work.training_arguments(config)]

    def training_arguments(self, config: "Config") -> list[str]:
        """Return the arguments of the training script that differ from its defaults. The timer
        ends the training after the window."""
        asked = self.model_dump() | {"device": config.device}
        if self.input == "synthetic":
            del asked["data_dir"]
        usual = Options(framework=config.framework, model=self.model, device=config.device)
        words = []
        for each in options():
            value = asked.get(each.name)
            is_usual = each.default is not MISSING and value == getattr(usual, each.name)
            if value is None or (is_usual and each.name != "device"):
                continue
            words.append("--" + each.name.replace("_", "-"))
            if not isinstance(value, bool):
                words.append(str(value))
        return words

    def environment(self, config: "Config") -> dict[str, str]:
        """Return the variables of its ranks besides those that every work has."""
        settings = cpu_settings(config, cpu_vendor(), usable_cores())
        if config.device == "gpu":
            settings |= gpu_settings(config.framework, tf32=self.tf32)
        return settings

    def cores(self, config: "Config") -> list[list[int]]:
        """Return the cores of each rank of a node; none: all cores."""
        if config.device == "gpu" and not self.disabled_tuning & {AFFINITY, ALL}:
            return near_cores(config.devices)
        return []

    @property
    def modules_needed(self) -> list[str]:
        """What its ranks import besides the framework."""
        return ["numpy", *OF_INPUT[self.input]]

    @property
    def modules(self) -> list[str]:
        """Local modules that a script imports."""
        return []

    def notice(self) -> str:
        """Return what may go wrong; empty if nothing is known."""
        return ""

    def change(self) -> Failure | None:
        """Return why the work is no longer that of the request; None if it is."""
        return None

    def less_memory(self) -> Iterator[str]:
        """Yield what makes the training need less memory."""
        if self.batch_size > 1:
            smaller = f"a smaller batch: -p batch_size {self.batch_size // 2}"
            if self.batch_size % 2 == 0:
                batches = 2 * self.accumulate
                smaller += f" (and -p accumulate {batches} for the same samples per step)"
            yield smaller
        if self.model == "llama" and self.recompute == "none":
            yield "activations computed again: -p recompute full"
        if self.sample_size > 128:
            parameter = "image_size" if self.image_size else "sequence_length"
            yield f"smaller samples: -p {parameter} {self.sample_size // 2}"


def _requoted(arguments: str) -> str:
    """Quote the arguments anew: the same words give the same configuration."""
    advice = "write them on one line and quote them as in a shell"
    try:
        requoted = shlex.join(shlex.split(arguments))
    except ValueError as error:
        raise ValueError(f"{error}; {advice}") from None
    if not requoted.isprintable():
        fault = "a line break or another character that is not printable"
        raise ValueError(f"{fault}; {advice}")
    return requoted


class OwnTraining(BaseModel):
    """A training of the user's, of which perfkit knows what it tells. ModelWork describes the
    properties."""

    model_config = STRICT
    defaults: ClassVar[dict[str, tuple[Any, str]]] = {}
    launches_itself: ClassVar = False
    sign_of_step: ClassVar = ModelWork.sign_of_step

    @property
    def short_title(self) -> str:
        return self.name

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in rows and tables, which no model has."""

    @property
    def facts(self) -> None:
        return None

    @property
    def built_in(self) -> ModelWork:
        raise TypeError(f"{self.name} is no built-in model")

    @property
    def precision(self) -> None:
        return None

    @property
    def input(self) -> None:
        """Only the training knows the source of its batches."""
        return None

    @property
    def data_folder(self) -> None:
        return None

    @property
    def data_sha256(self) -> None:
        return None

    @property
    def has_sample_data(self) -> bool:
        return False

    def examine(self, _config: "Config") -> None:
        return None

    @property
    def is_sharded(self) -> bool:
        return False

    def counts(self, told: Told | None = None) -> Counts:
        return Counts(
            unit=f"{told.unit}/s" if told else UNTOLD_UNIT,
            units_per_sample=1,
            samples_per_step=told.samples_per_step if told else None,
            flops_per_unit=told.flops_per_sample if told else None,
            parameters=told.parameters if told else None,
        )

    def effective(self, _told: Told, _notes: dict[str, Any]) -> None:
        return None

    def stored_told(self, told: Told) -> Told:
        return told

    def cores(self, _config: "Config") -> list[list[int]]:
        return []

    @property
    def modules_needed(self) -> list[str]:
        """perfkit's timer needs the standard library alone."""
        return []

    def notice(self) -> str:
        return ""


class ScriptWork(OwnTraining):
    """A training script of the user's. `request.resolve` fills in `script_sha256` and
    `modules`, which follow from its content."""

    reported: ClassVar = ("precision", "parameters", "samples_per_step", "unit")

    script: Annotated[LocalPath, CONTENT]
    """the training script, which calls perfkit.StepTimer; its name and content make a new id,
    its folder does not"""
    arguments: Annotated[str, Field(max_length=MOST_CHARACTERS), AfterValidator(_requoted)] = ""
    """the script's arguments, quoted as in a shell"""
    script_sha256: Annotated[str, Field(pattern=SHA256)]
    """digest of the names and contents of the script and its modules"""
    modules: list[str]
    """local modules that the script imports statically, at any depth"""

    @property
    def word(self) -> str:
        return SCRIPT

    @property
    def name(self) -> str:
        """The script's file name, `train.py`."""
        return PurePosixPath(self.script).name

    @property
    def script_file(self) -> Path:
        """`script` as an absolute path."""
        return stored_path(self.script)

    @property
    def batch_size(self) -> None:
        return None

    @property
    def working_folder(self) -> Path:
        """That of this process, to which the script's paths may be relative."""
        return Path.cwd()

    def script_words(self, _config: "Config", _task: str = "measure") -> list[str]:
        return [str(self.script_file), *shlex.split(self.arguments)]

    def environment(self, config: "Config") -> dict[str, str]:
        """Return threads alone: the other settings of models choose other kernels."""
        return cpu_settings(config, vendor="", cores=usable_cores())

    def notice(self) -> str:
        """Return what is missing if neither the script nor a local module imports perfkit by a
        statement."""
        try:
            content = read_script(self.script_file)
        except OSError:
            # The measurement says that the script can't be read.
            return ""
        if content.imports_perfkit:
            return ""
        return (
            f"{self.name} and its modules do not import perfkit, whose timer must be called in "
            "the training loop: timer = perfkit.StepTimer(samples_per_step=N), and "
            "timer.step(loss) after each step of the optimizer"
        )

    def change(self) -> Failure | None:
        try:
            now = script_digest(self.script_file)
        except OSError as error:
            reason = portable(f"{self.script} can't be read: {error}")
            return Failure(code="script_unreadable", reason=reason)
        if now == self.script_sha256:
            return None
        before, now = self.script_sha256[:SHOWN_DIGITS], now[:SHOWN_DIGITS]
        reason = (
            f"{self.script}, or a module that it imports, was changed since the request "
            f"(SHA-256 {before}, now {now}); start again: a changed script is another "
            "measurement"
        )
        return Failure(code="script_changed", reason=reason)

    def less_memory(self) -> Iterator[str]:
        yield "a smaller batch, by an argument of the script"


class CommandWork(OwnTraining):
    """Any training command, timed by its own log. `request.resolve` fills in what follows from
    the files that it names."""

    reported: ClassVar = ("unit",)
    launches_itself: ClassVar = True
    sign_of_step: ClassVar = "a line of a format that perfkit audit --formats lists"

    command: Annotated[
        str, Field(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(_requoted)
    ]
    """the command that trains, quoted as in a shell; it starts its own ranks and nodes"""
    flags: Annotated[str, Field(max_length=MOST_CHARACTERS), AfterValidator(_requoted)] = ""
    """words to put in the place of {flags} in the command, without one to append"""
    directory: Annotated[LocalPath, OF_PLACE]
    """working directory of the command; None: that of the request"""
    log_file: Annotated[LocalPath | None, OF_PLACE] = None
    """file to which the command logs, if it is not its output; what a repeat appends counts"""
    until: Annotated[Literal["window", "end"], RUN] = "window"
    """when a repeat ends: with its window, or with the command"""
    batch_size: Annotated[int | None, Field(ge=1, le=10**9)] = None
    """samples of one device in an optimizer update, if the log does not tell them"""
    sequence_length: Annotated[int | None, Field(ge=1, le=10**7)] = None
    """tokens of a sample, if the log does not tell them"""
    files: list[str]
    """files that the command names"""
    files_sha256: Annotated[str, Field(pattern=SHA256)]
    """digest of these files, of the local modules of scripts, and of what the git checkout has
    changed since its commit"""
    commit: str | None
    """commit of the git checkout in which it runs; None outside of one"""
    dirty: bool
    """whether files of this checkout had uncommitted changes"""

    @property
    def word(self) -> str:
        return COMMAND

    @property
    def name(self) -> str:
        """The name of the first script or module in the command, else of its program."""
        words = shlex.split(self.command)
        for before, word in pairwise(words):
            if before == "-m" or word.endswith(SCRIPT_SUFFIXES):
                return PurePosixPath(word).name
        return PurePosixPath(words[0]).name

    @property
    def words(self) -> list[str]:
        """The words of the command with its flags."""
        return with_flags(self.command, self.flags)

    @property
    def modules(self) -> list[str]:
        return []

    @property
    def working_folder(self) -> Path:
        return stored_path(self.directory)

    def script_words(self, config: "Config", _task: str = "measure") -> list[str]:
        options = self.model_dump(include={"until", "batch_size", "sequence_length"})
        options |= {
            "directory": str(self.working_folder),
            "log_file": self.log_file and str(stored_path(self.log_file)),
            "devices": config.device_count,
        }
        return [json.dumps(options), *self.words]

    def environment(self, _config: "Config") -> dict[str, str]:
        return {}

    def change(self) -> Failure | None:
        try:
            now = read_command(self.words, self.files, self.working_folder)
        except OSError as error:
            return Failure(code="script_unreadable", reason=portable(str(error)))
        if (now.files_sha256, now.commit) == (self.files_sha256, self.commit):
            return None
        reason = (
            "the git checkout, or a file that the command names, was changed since the request "
            f"(SHA-256 {self.files_sha256[:SHOWN_DIGITS]}, now "
            f"{now.files_sha256[:SHOWN_DIGITS]}); start again: it is another measurement"
        )
        return Failure(code="script_changed", reason=reason)

    def notice(self) -> str:
        """Return what perfkit can't see outside of a git checkout."""
        if self.commit:
            return ""
        named = ", ".join(self.files) or "none"
        return (
            f"{self.working_folder} is no git checkout: of changes of the code, perfkit sees "
            f"those of the files that the command names alone ({named})."
        )

    def less_memory(self) -> Iterator[str]:
        yield "a smaller batch, by an option of the command"


Work = ModelWork | ScriptWork | CommandWork
Kind = type[ModelWork] | type[ScriptWork] | type[CommandWork]
"""The class of a work."""
KINDS: dict[str, Kind] = {SCRIPT: ScriptWork, COMMAND: CommandWork}


def kind_of(word: str) -> Kind:
    """Return the class of what `perfkit.plan` and the notebooks call a model, "script" or
    "command"."""
    return KINDS.get(word, ModelWork)
