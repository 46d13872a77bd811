"""What a diagnosis says: measurements, verdict, ratio, caveats and advice, each a sentence."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from perfkit.analysis.diagnosis.judge import SLIGHT, cost_in_turn
from perfkit.analysis.diagnosis.stored import (
    AnyDiagnosis,
    Diagnosis,
    ScriptDiagnosis,
    Setting,
)
from perfkit.core.config import Config
from perfkit.core.format import percent
from perfkit.core.models import model_of
from perfkit.core.script_config import AnyConfig, built_in
from perfkit.core.statements import N_, Format, Share, Statement

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


# Verdicts.


class InputBound(DiagnosisStatement):
    code = "input-bound"
    sentence = N_("Input-bound: training runs at the speed of the input pipeline.")


class TrainingBound(DiagnosisStatement):
    code = "training-bound"
    sentence = N_("Training-bound: the input costs almost no throughput.")


class Mixed(DiagnosisStatement):
    code = "mixed"
    sentence = N_("Mixed: the input alone is faster than training, but costs throughput.")


class Undecided(DiagnosisStatement):
    code = "undecided"
    sentence = N_("Undecided: these repeats do not show what the input costs.")


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


class DeviceMayCompute(DiagnosisStatement):
    code = "device_may_compute"
    sentence = N_(
        "The device may compute while the host waits for data, so the wait is not necessarily "
        "lost time."
    )


VERDICTS: dict[str, type[DiagnosisStatement]] = {
    verdict.code: verdict for verdict in (InputBound, TrainingBound, Mixed, Undecided)
}


def statements_of(diagnosis: AnyDiagnosis, config: AnyConfig) -> Iterator[DiagnosisStatement]:
    """Yield what the diagnosis of `config` says, in the order in which it is shown."""
    if isinstance(diagnosis, ScriptDiagnosis):
        yield from _of_script(diagnosis)
    else:
        yield from _of_model(diagnosis, built_in(config))


def _of_script(diagnosis: ScriptDiagnosis) -> Iterator[DiagnosisStatement]:
    yield ScriptInputAlone(seconds=diagnosis.batch_seconds)
    yield ScriptStep(seconds=diagnosis.step_seconds, share=max(diagnosis.wait_shares))
    yield VERDICTS[diagnosis.verdict]()
    if diagnosis.verdict == "mixed":
        yield SharedCores()
    if diagnosis.verdict != "undecided":
        return
    if min(diagnosis.wait_shares) <= SLIGHT:
        yield MoreRepeats()
    else:
        yield DeviceMayCompute()


def _of_model(diagnosis: Diagnosis, config: Config) -> Iterator[DiagnosisStatement]:
    yield from _rates(diagnosis, config)
    yield VERDICTS[diagnosis.verdict]()
    yield from _ratio(diagnosis)
    yield from _advice(diagnosis, config)


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
    if diagnosis.out_of_turn:
        yield OutOfTurn(numbers=diagnosis.out_of_turn)
    if diagnosis.ratio > 1 + SLIGHT:
        yield Disturbed()
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
