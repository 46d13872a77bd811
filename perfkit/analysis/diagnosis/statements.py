"""What a diagnosis says, each a sentence: the verdict, caveats, advice, and the evidence."""

from collections.abc import Iterator, Sequence
from gettext import NullTranslations
from typing import Annotated, ClassVar

from perfkit.analysis.diagnosis.judge import SLIGHT, cost_in_turn, loads_in_turn
from perfkit.analysis.diagnosis.stored import (
    AnyDiagnosis,
    Diagnosis,
    Limit,
    ScriptDiagnosis,
    Setting,
)
from perfkit.core.config import Config
from perfkit.core.format import percent
from perfkit.core.models import model_of
from perfkit.core.script_config import AnyConfig, built_in
from perfkit.core.statements import N_, Digits3, Format, Share, Statement

RoughShare = Annotated[float, Format(lambda share, _language: percent(share, 2))]
"""A fraction, written in percent with two digits."""
Level = Annotated[float, Format(lambda level, _language: percent(level, 4))]
"""The level of an interval, written in percent."""


class DiagnosisStatement(Statement):
    """A sentence of a diagnosis."""

    classes: ClassVar = {}


# Measurements.


class InputAloneRate(DiagnosisStatement):
    code = "input_alone"
    sentence = N_("Input alone, %(setting)s=%(count)s: %(rate)s %(unit)s.")
    setting: Setting
    count: int
    rate: float
    unit: str


class ComputeAloneRate(DiagnosisStatement):
    code = "compute_alone"
    sentence = N_("Compute alone, synthetic input: %(rate)s %(unit)s.")
    rate: float
    unit: str


class BothRate(DiagnosisStatement):
    code = "both"
    sentence = N_("Both, training with %(input)s: %(rate)s %(unit)s.")
    input: str
    rate: float
    unit: str


class ScriptInputAlone(DiagnosisStatement):
    code = "script_input"
    sentence = N_("Input alone: a batch every %(seconds)s s.")
    seconds: float


class ScriptStep(DiagnosisStatement):
    code = "script_step"
    sentence = N_("Training: a step every %(seconds)s s; up to %(share)s waits for data.")
    seconds: float
    share: RoughShare


# Verdicts: what limits the throughput, and by how much.


class DiagnosisVerdict(DiagnosisStatement):
    """The first sentence of a diagnosis."""


class InputCost(DiagnosisVerdict):
    """A verdict on a model: the share of its throughput that the input costs."""

    cost: Share
    level: Level
    low: Share
    high: Share


class InputBound(InputCost):
    code = "input-bound"
    sentence = N_(
        "Input-bound: the input costs %(cost)s of the throughput (%(level)s interval %(low)s "
        "to %(high)s); training runs at the speed of the input pipeline."
    )


class TrainingBound(InputCost):
    code = "training-bound"
    sentence = N_(
        "Training-bound: the input costs at most %(high)s of the throughput, at %(level)s."
    )


class Mixed(InputCost):
    code = "mixed"
    sentence = N_(
        "Limited by input and training: the input costs %(cost)s of the throughput (%(level)s "
        "interval %(low)s to %(high)s), though the input alone is faster than both together."
    )


class Undecided(InputCost):
    code = "undecided"
    sentence = N_(
        "Can't tell: the input costs from %(low)s to %(high)s of the throughput, at %(level)s."
    )


def _range(shares: Sequence[float], _language: NullTranslations) -> str:
    ends = [percent(share, 2) for share in (min(shares), max(shares))]
    return " – ".join(dict.fromkeys(ends))


class WaitForData(DiagnosisVerdict):
    """A verdict on a script: the shares of its time that its repeats wait for data."""

    shares: Annotated[list[float], Format(_range)]


class ScriptInputBound(WaitForData):
    code = "script-input-bound"
    sentence = N_(
        "Input-bound: training waits for data for %(shares)s of its time, and runs at the "
        "speed of the input."
    )


class ScriptTrainingBound(WaitForData):
    code = "script-training-bound"
    sentence = N_("Training-bound: training waits for data for %(shares)s of its time.")


class ScriptMixed(WaitForData):
    code = "script-mixed"
    sentence = N_(
        "Limited by input and training: training waits for data for %(shares)s of its time, "
        "though the input alone is faster."
    )


class ScriptInTurn(WaitForData):
    code = "script-in-turn"
    sentence = N_(
        "Limited by input and training, one after the other: training waits for data for "
        "%(shares)s of its time, as long as the input alone takes."
    )


class ScriptUndecided(WaitForData):
    code = "script-undecided"
    sentence = N_("Can't tell: training waits for data for %(shares)s of its time.")


# The ratio.


class RatioOfPairs(DiagnosisStatement):
    code = "pairs"
    sentence = N_(
        "Both / compute alone: %(ratio)s (%(level)s interval %(low)s to %(high)s), the median "
        "of the ratios of repeat k to repeat k."
    )
    ratio: Share
    level: Level
    low: Share
    high: Share


class OutOfTurn(DiagnosisStatement):
    code = "out_of_turn"
    sentence = N_(
        "These repeats were not measured in turn, and drift of the machine may have changed "
        "their ratios: %(numbers)s."
    )
    numbers: list[int]


class Disturbed(DiagnosisStatement):
    code = "disturbed"
    sentence = N_(
        "Training was faster with its input than without: a disturbance, or scatter of the "
        "repeats; measure again on a quieter machine."
    )


class CostInTurn(DiagnosisStatement):
    code = "cost"
    sentence = N_("Without any overlap with training, the input would cost %(cost)s.")
    cost: RoughShare


# Advice.


class MoreRepeats(DiagnosisStatement):
    code = "more_repeats"
    sentence = N_("More repeats (-p repeats 10) or a quieter machine may decide.")


class Sufficient(DiagnosisStatement):
    code = "enough"
    sentence = N_("%(setting)s=%(count)s or more is fast enough for this training.")
    setting: Setting
    count: int


class SufficientPrefetch(DiagnosisStatement):
    code = "depth"
    sentence = N_("dali_prefetch=%(depth)s or more hides the jitter of the batches.")
    depth: int


class NoneSufficient(DiagnosisStatement):
    code = "none_enough"
    sentence = N_(
        "None of the tested settings is fast enough; more or faster cores are needed."
    )


class SharedCores(DiagnosisStatement):
    code = "shared_cores"
    sentence = N_("Input and training share these cores; no setting removes all cost.")


class LoadAhead(DiagnosisStatement):
    code = "load_ahead"
    sentence = N_(
        "Batches seem to be loaded only when training asks for them: loading ahead, by worker "
        "processes or prefetching, can hide up to %(seconds)s s of a step."
    )
    seconds: Digits3


class DeviceMayCompute(DiagnosisStatement):
    code = "device_may_compute"
    sentence = N_(
        "The device may compute while the host waits for data, so the wait is not necessarily "
        "lost time."
    )


VERDICTS: dict[Limit, type[InputCost]] = {
    "input-bound": InputBound,
    "training-bound": TrainingBound,
    "mixed": Mixed,
    "undecided": Undecided,
}
SCRIPT_VERDICTS: dict[Limit, type[WaitForData]] = {
    "input-bound": ScriptInputBound,
    "training-bound": ScriptTrainingBound,
    "mixed": ScriptMixed,
    "undecided": ScriptUndecided,
}


def verdict_of(diagnosis: AnyDiagnosis) -> DiagnosisVerdict:
    """Return what limits the throughput, and by how much."""
    if isinstance(diagnosis, ScriptDiagnosis):
        kind = SCRIPT_VERDICTS[diagnosis.verdict]
        if _is_in_turn(diagnosis):
            kind = ScriptInTurn
        return kind(shares=diagnosis.wait_shares)
    low, high = diagnosis.interval
    most = 1 - low
    if diagnosis.verdict == "training-bound":
        most = max(most, 0.0)
    return VERDICTS[diagnosis.verdict](
        cost=1 - diagnosis.ratio, level=diagnosis.interval_level, low=1 - high, high=most
    )


def statements_of(diagnosis: AnyDiagnosis, config: AnyConfig) -> Iterator[DiagnosisStatement]:
    """Yield what the diagnosis of `config` says: the verdict, caveats, advice, the evidence."""
    yield verdict_of(diagnosis)
    if isinstance(diagnosis, ScriptDiagnosis):
        yield from _advice_on_script(diagnosis)
        yield ScriptInputAlone(seconds=diagnosis.batch_seconds)
        yield ScriptStep(seconds=diagnosis.step_seconds, share=max(diagnosis.wait_shares))
    else:
        yield from _caveats(diagnosis)
        yield from _advice(diagnosis, built_in(config))
        yield from _rates(diagnosis, built_in(config))
        yield from _ratio(diagnosis)


def _is_in_turn(diagnosis: ScriptDiagnosis) -> bool:
    """Return whether input and training limit a script one after the other."""
    return diagnosis.verdict == "mixed" and loads_in_turn(
        diagnosis.wait_shares, diagnosis.input_seconds, diagnosis.step_seconds
    )


def _advice_on_script(diagnosis: ScriptDiagnosis) -> Iterator[DiagnosisStatement]:
    if _is_in_turn(diagnosis):
        computing = diagnosis.step_seconds - diagnosis.input_seconds
        yield LoadAhead(seconds=min(diagnosis.input_seconds, computing))
    elif diagnosis.verdict == "mixed":
        yield SharedCores()
    if diagnosis.verdict != "undecided":
        return
    if min(diagnosis.wait_shares) <= SLIGHT:
        yield MoreRepeats()
    else:
        yield DeviceMayCompute()


def _caveats(diagnosis: Diagnosis) -> Iterator[DiagnosisStatement]:
    if diagnosis.out_of_turn:
        yield OutOfTurn(numbers=diagnosis.out_of_turn)
    if diagnosis.ratio > 1 + SLIGHT:
        yield Disturbed()


def _rates(diagnosis: Diagnosis, config: Config) -> Iterator[DiagnosisStatement]:
    unit = model_of(config).unit
    for alone in diagnosis.input_alone:
        yield InputAloneRate(
            setting=alone.setting, count=alone.count, rate=alone.throughput, unit=unit
        )
    yield ComputeAloneRate(rate=diagnosis.synthetic, unit=unit)
    yield BothRate(input=config.input, rate=diagnosis.throughput, unit=unit)


def _ratio(diagnosis: Diagnosis) -> Iterator[DiagnosisStatement]:
    low, high = diagnosis.interval
    yield RatioOfPairs(
        ratio=diagnosis.ratio, level=diagnosis.interval_level, low=low, high=high
    )
    alone = diagnosis.input_alone[0].throughput
    yield CostInTurn(cost=cost_in_turn(diagnosis.synthetic, alone))


def _advice(diagnosis: Diagnosis, config: Config) -> Iterator[DiagnosisStatement]:
    if diagnosis.verdict == "undecided":
        yield MoreRepeats()
    if diagnosis.verdict not in ("input-bound", "mixed"):
        return
    sufficient = diagnosis.sufficient
    if sufficient is None:
        yield NoneSufficient()
    else:
        yield Sufficient(setting=sufficient.setting, count=sufficient.count)
        if sufficient.setting == "dali_threads" and sufficient.depth:
            yield SufficientPrefetch(depth=sufficient.depth)
    if config.device == "cpu":
        yield SharedCores()
