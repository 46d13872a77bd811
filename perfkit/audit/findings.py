"""Findings about one or several logs, as codes with parameters (sentences: findings.toml)."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import isfinite, nan
from operator import attrgetter
from typing import Any

import numpy as np

from perfkit.analysis.warnings import STANDING, has_few_guesses, untrained_losses
from perfkit.audit.audit import AuditedLog, Claim, Figure, Finding
from perfkit.audit.claims import APART
from perfkit.audit.log import Columns, Log, some_of
from perfkit.audit.recompute import END, WARMUP, Figures, inside
from perfkit.core.format import plain
from perfkit.core.messages import Message
from perfkit.core.models import find_model

WAIT = 0.05
"""Share of the time spent waiting for input above which a finding is reported."""
LIMIT_SPREAD = 0.02
"""Waits that vary by less than this share of a step's time show no input limit."""
CLOCK_APART = 0.02
"""Share by which printed times must differ from the prints' clock to be reported."""
SLOW = 0.1
"""A slow print takes more than this share of the time and SLOW_TIMES its share of the steps."""
SLOW_TIMES = 3
UNSTEADY = 0.01
"""Share by which the protocol's steps must differ from the steady ones to be reported."""
FEW = 10
"""Losses averaged at either end."""
Located = Iterator[tuple[int | None, Message]]
RATES, TIME, CLOCK = "mean of rates", "samples/time", "clock"
PAIRS = {
    ("mean_of_rates", "mean", "reference", "share"): (
        APART,
        [((RATES, period), (TIME, period)) for period in ("protocol", "all")],
    ),
    ("clock_differs", "clock", "reference", "difference"): (
        CLOCK_APART,
        [((CLOCK, period), (TIME, period)) for period in ("protocol", "warm")],
    ),
    ("protocol_not_steady", "protocol", "steady", "difference"): (
        UNSTEADY,
        [((statistic, "protocol"), (statistic, "steady")) for statistic in (TIME, CLOCK)],
    ),
}
"""Code and names of its parameters -> share by which two figures may differ, and the pairs of
(statistic, period) compared."""


@np.errstate(all="ignore")
def findings_of(name: str, figures: Figures) -> list[Finding]:
    """Return the findings about one log under its `name`."""
    log, rows = figures.log, figures.rows
    found = [(line or None, message) for line, message in log.notes]
    is_inference = log.fact("mode") == "inference"
    found += [(None, Message("not_training"))] if is_inference else []
    if rows:
        found += [*_of_rows(rows, figures), *_of_pairs(figures), *_slow_print(rows)]
        found += _of_input(rows, figures.input_share or 0.0)
        found += [] if is_inference else _of_losses(log, rows)
    else:
        found.append((None, Message("no_prints")))
    return [
        Finding(message.code, {k: _storable(v) for k, v in message.params.items()}, name, line)
        for line, message in found
    ]


def _storable(value: Any) -> Any:
    """Return foreign text on one line; numbers that JSON lacks become text."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return plain(value) if isinstance(value, str) else value


def _of_rows(rows: Columns, figures: Figures) -> Located:
    steps = int(rows["steps"][inside(rows, "protocol")].sum())
    steps = max((f.steps for f in figures.shown if f.period == "protocol"), default=steps)
    if steps < END - WARMUP:
        yield None, Message("fewer_steps", {"steps": steps, "first": WARMUP + 1, "last": END})
    accuracy, rates = rows["accuracy"], rows["rate"]
    for code, shown in (
        ("restarts", np.diff(rows["run"], prepend=rows["run"][0]) > 0),
        ("odd_rates", (rates <= 0) | np.isinf(rates)),
        ("negative_accuracy", accuracy < 0),
    ):
        if shown.any():
            params: dict[str, Any] = {"count": int(shown.sum())}
            if code == "negative_accuracy":
                params["lowest"] = float(accuracy[shown].min())
            yield int(rows["line"][shown][0]), Message(code, params)


def _of_pairs(figures: Figures) -> Located:
    """Yield, for each of PAIRS, the first two figures that differ by more than its limit;
    figures of the same period must cover the same steps."""
    by: dict[Any, Figure] = {(f.statistic, f.period): f for f in figures.shown}
    for (code, *names), (limit, pairs) in PAIRS.items():
        if code == "mean_of_rates" and figures.is_sampled:
            continue
        for a, b in ((by.get(first), by.get(second)) for first, second in pairs):
            if a and b and (a.period != b.period or _steps(a) == _steps(b)):
                rounding = a.rounding + b.rounding if code == "clock_differs" else 0.0
                share = _share(a, b)
                if (share if code == "mean_of_rates" else abs(share)) > limit + rounding:
                    values = dict(zip(names, (a.value, b.value, share), strict=True))
                    yield None, Message(code, values | _steps(a))
                    break


def _steps(figure: Figure) -> dict[str, Any]:
    return {"first": figure.first, "last": figure.last}


def _share(one: Figure, other: Figure) -> float:
    """Return the relative difference of two figures; nan if their devices differ."""
    of_device, of_all = (one.per_device, other.per_device), (one.throughput, other.throughput)
    return next((a / b - 1 for a, b in (of_device, of_all) if a and b), nan)


def _slow_print(rows: Columns) -> Located:
    """Yield a print that takes much of the time of the protocol's steps, or of all if none."""
    protocol = inside(rows, "protocol")
    rows = some_of(rows, protocol) if protocol.any() else rows
    steps, times = rows["steps"], rows["seconds"]
    times = times if (times > 0).any() else steps / rows["own_rate"]
    times = np.where(np.isfinite(times), times, 0.0)
    longest = times.argmax()
    share = float(times[longest] / times.sum()) if times.sum() > 0 else 0.0
    if share > max(SLOW, SLOW_TIMES * steps[longest] / steps.sum()):
        params = {"share": share, "steps": int(steps[longest]), "of": int(steps.sum())}
        yield int(rows["line"][longest]), Message("slow_print", params)


def _of_input(rows: Columns, share: float) -> Located:
    """Call a data wait a limit only if steps that wait less are faster by as much: waiting in
    an asynchronous loop alone does not prove an input limit."""
    if share <= WAIT:
        return
    from scipy.stats import kendalltau, theilslopes

    rows = some_of(rows, inside(rows, "warm"))
    wait, time = rows["reader"] / rows["steps"], rows["seconds"] / rows["steps"]
    known = ~np.isnan(wait + time)
    wait, time = wait[known][-2000:], time[known][-2000:]
    spread = np.ptp(np.quantile(wait, (0.1, 0.9))) if len(wait) >= FEW else 0.0
    if spread and spread > LIMIT_SPREAD * np.median(time):
        slope = float(theilslopes(time, wait).slope)
        if kendalltau(wait, time).pvalue < 0.01 and 0.5 <= slope <= 1.5:
            yield None, Message("input_limit", {"share": share, "slope": slope})
            return
    yield None, Message("input_wait", {"share": share})


def _of_losses(log: Log, rows: Columns) -> Located:
    """Check that the losses are those of a training, with the bounds of
    `perfkit.analysis.warnings`."""
    loss, finite = rows["loss"], np.flatnonzero(np.isfinite(rows["loss"]))
    # Losses that are printed but not numbers are stored as infinite.
    after = int(finite[-1]) + 1 if len(finite) else 0
    lost = after + np.flatnonzero(~np.isnan(loss[after:]))
    if len(lost):
        yield int(rows["line"][lost[0]]), Message("loss_not_finite")
    if not len(finite):
        return
    losses = loss[finite]
    few = max(min(FEW, len(losses) // 2), 1)
    first, last = float(losses[:few].mean()), float(losses[-few:].mean())
    if model := find_model(log.fact("model")):
        low, high = untrained_losses(model)
        earliest = float(losses[0])
        samples = log.number("batch_size") * (log.number("accumulate") or 1)
        is_few = bool(samples) and has_few_guesses(model, samples)
        is_first = rows["last"][finite[0]] <= WARMUP
        if is_first and not is_few and not low <= earliest <= high:
            yield None, Message("first_loss", {"loss": earliest, "low": low, "high": high})
        if last > high:
            yield None, Message("last_loss", {"loss": last, "high": high})
    if len(losses) > 1 and np.ptp(losses) < STANDING:
        params = {"loss": float(losses.min()), "count": len(losses)}
        yield None, Message("constant_loss", params)
    elif len(losses) > 1 and last >= first:
        yield None, Message("loss_not_falling", {"first": first, "last": last})


def together(logs: list[AuditedLog], claims: list[Claim]) -> list[Finding]:
    """Return the findings about several logs or claims together."""
    found = [*_same_files(logs), *_super_linear(logs)]
    found += [*_mixed_statistics(claims), *_one_for_two(claims)]
    return [Finding(message.code, message.params) for message in found]


def _grouped(items: Iterable[Any], key: Callable[[Any], Any]) -> list[tuple[Any, list[Any]]]:
    """Return the groups of two or more items with equal keys."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return [(name, group) for name, group in groups.items() if len(group) > 1]


def _same_files(logs: list[AuditedLog]) -> Iterator[Message]:
    for _content, same in _grouped(logs, attrgetter("sha256")):
        names = [*dict.fromkeys(re.sub(r"#\d+$", "", log.name) for log in same)]
        if len(names) > 1:
            yield Message("same_file", {"files": names})


def _super_linear(logs: list[AuditedLog]) -> Iterator[Message]:
    keys = ("model", "framework", "precision", "batch_size", "accumulate", "gpu")
    runs = [
        (log, figure.throughput / figure.per_device, figure.per_device)
        for log in logs
        if (figure := log.reference) and figure.throughput and figure.per_device
        if {"model", "batch_size"} <= log.facts.keys()
    ]
    for _work, same in _grouped(runs, lambda run: tuple(map(run[0].fact, keys))):
        base, fewest, slowest = min(same, key=lambda run: run[1:])
        for log, ranks, device in same:
            if ranks > fewest and (share := device / slowest - 1) > APART:
                files = {"file": log.name, "base": base.name, "share": share}
                counts = {"ranks": round(ranks), "of": round(fewest)}
                yield Message("super_linear", files | counts)


def _mixed_statistics(claims: list[Claim]) -> Iterator[Message]:
    """Find speed-ups whose numbers no single statistic explains."""
    explained = [claim for claim in claims if claim.table and claim.explanations]
    part = attrgetter("table", "gpu", "framework", "precision")
    for (table, _gpu, framework, precision), group in _grouped(explained, part):
        methods = [{e.figure.method for e in claim.explanations} for claim in group]
        if not set.intersection(*methods):
            figures = {
                f"{c.topology}, {c.batch_size}": c.explanations[0].figure.model_dump()
                for c in group
            }
            place = {"table": table, "framework": framework, "precision": precision}
            yield Message("mixed_statistics", {**place, "figures": figures})


def _one_for_two(claims: list[Claim]) -> Iterator[Message]:
    explained = [claim for claim in claims if claim.log and claim.explanations]
    for log, same in _grouped(explained, attrgetter("log")):
        yield Message("one_for_two", {"file": log, "places": [claim.place for claim in same]})
