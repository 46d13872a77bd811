"""The TFLOP/s or MFU that a log itself prints, beside those of its answer."""

from collections.abc import Iterator

import numpy as np

from perfkit.audit.answer import Answer, ModelSpeed, OwnPrint
from perfkit.audit.figure import Period
from perfkit.audit.log import Columns, Log
from perfkit.audit.printed import MOST, DeclaredQuantity
from perfkit.audit.recompute import Figures
from perfkit.audit.statements import Finding, OwnFlopsDiffer
from perfkit.measuring.units import PERCENT

MOST_APART = 1.5
"""Factor between the TFLOP/s of an answer and the log's own that neither causal attention nor
recomputation (4/3) nor the vocabulary explains."""


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def with_own_print(answer: Answer | None, figures: Figures) -> Answer | None:
    """Return an answer with the TFLOP/s of a device or, without any, the MFU that the log
    prints over the same steps. They are compared only with those of these steps."""
    if not answer or not answer.model or not answer.is_of_steps:
        return answer
    prints = _own_prints(answer.model, figures.log, _rows(figures, answer.period))
    model = answer.model.model_copy(update={"own": next(prints, None)})
    return answer.model_copy(update={"model": model})


def _rows(figures: Figures, period: Period | None) -> Columns:
    """Return the windows of a period; empty without any."""
    return figures.periods[period].rows if period in figures.periods else {}


def _own_prints(model: ModelSpeed, log: Log, rows: Columns) -> Iterator[OwnPrint]:
    """Yield the printed TFLOP/s of a device, then the printed MFU if the answer has one."""
    computed = {"TFLOP/s": model.tflops_per_device}
    if model.mfu:
        computed["MFU"] = PERCENT * model.mfu
    causal = model.causal_tflops_per_device
    for quantity, of_answer in computed.items():
        for printed in log.printed:
            if printed.quantity != quantity or printed.of == "all":
                continue
            value = _mean(printed, rows)
            if value:
                yield OwnPrint(
                    name=printed.name,
                    quantity=printed.quantity,
                    value=value,
                    ratio=value / of_answer,
                    causal_ratio=causal and causal / model.tflops_per_device,
                )


def _mean(printed: DeclaredQuantity, rows: Columns) -> float | None:
    """Return the mean over the steps of a quantity that is inverse to their time; None without
    a print."""
    if printed.column not in rows:
        return None
    values = rows[printed.column] * printed.scale
    is_printed = (values > 1 / MOST) & (values < MOST)
    if not is_printed.any():
        return None
    steps = rows["steps"][is_printed]
    return float(steps.sum() / (steps / values[is_printed]).sum())


def own_flops_differ(answer: Answer | None) -> Iterator[Finding]:
    """Yield the finding that the TFLOP/s of an answer and the log's own differ by much."""
    model = answer.model if answer else None
    own = model.own if model else None
    if not model or not own or own.quantity != "TFLOP/s":
        return
    if own.ratio > MOST_APART or own.ratio < (own.causal_ratio or 1.0) / MOST_APART:
        yield OwnFlopsDiffer(
            name=own.name,
            quantity=own.quantity,
            own=own.value,
            answer=model.tflops_per_device,
            times=1 / own.ratio,
        )
