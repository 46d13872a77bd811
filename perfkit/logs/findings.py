"""What is odd about a log, or about several together: stated as it was seen, as codes with
parameters, whose sentences findings.toml has."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perfkit.analysis.losses import STANDING, untrained_losses
from perfkit.logs.audit import AuditedLog, Claim, Figure, Period
from perfkit.logs.claims import APART
from perfkit.logs.log import Log
from perfkit.logs.recompute import END, WARMUP, Figures, RateScope, Windows
from perfkit.messages import Message
from perfkit.models import MODELS
from perfkit.results.schema import Finding
from perfkit.text.terminal import plain

WAIT = 0.05
"""Waiting for input for more than this share of the time is told."""
LIMIT_SPREAD = 0.02
"""Waits that spread by less than this share of a step's time say nothing of a limit."""
CLOCK_APART = 0.02
"""Printed times that differ from the prints' clock by more than this share are told."""
SLOW = 0.1
"""One print that takes more than this share of the time, and SLOW_TIMES the share of its steps,
is told."""
SLOW_TIMES = 3
UNSTEADY = 0.01
"""The protocol's steps that differ from the steady ones by more than this share are told."""
ALIKE = 3
"""So many losses to all their digits are the same in two files by no chance."""
FEW = 10
"""Losses at either end that are averaged."""
Located = Iterator[tuple[int | None, Message]]


@np.errstate(all="ignore")
def findings_of(log: Log, name: str, figures: Figures) -> list[Finding]:
    """What one log shows."""
    found = [(line or None, Message(m.code, _plain(m.params))) for line, m in log.notes]
    if log.fact("mode") == "inference":
        found.append((None, Message("not_training", {})))
    if (windows := figures.windows) is None:
        found.append((None, Message("no_prints", {})))
    else:
        found += [*_of_steps(windows, figures), *_of_rates(log, figures)]
        found += [*_of_input(windows, figures), *_of_prints(log, windows)]
        found += _of_training(log, windows.rows)
    return [Finding(m.code, m.params, name, line) for line, m in found]


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(v) if isinstance(v, str) else v for name, v in params.items()}


def _of_steps(windows: Windows, figures: Figures) -> Located:
    rows = windows.rows
    steps = max((one.steps for one in figures.shown if one.period == "protocol"), default=0)
    if steps < END - WARMUP:
        yield None, Message("fewer_steps", {"steps": steps, "first": WARMUP + 1, "last": END})
    restarts = np.flatnonzero(np.diff(rows["run"], prepend=rows["run"][0]) > 0)
    if len(restarts):
        yield int(rows["line"][restarts[0]]), Message("restarts", {"count": len(restarts)})
    ahead = np.diff(rows["last"], prepend=0)
    usual, counts = np.unique(ahead[windows.goes_on], return_counts=True)
    if len(usual) and counts.max() >= 0.9 * counts.sum():
        spacing = int(usual[counts.argmax()])
        gaps = np.flatnonzero(windows.goes_on & (ahead > spacing))
        if len(gaps):
            params = {"count": len(gaps), "spacing": spacing}
            yield int(rows["line"][gaps[0]]), Message("missing_prints", params)


def _of_rates(log: Log, figures: Figures) -> Located:
    by = {(one.statistic, one.period): one for one in figures.shown}
    for period in ("protocol", "all"):
        mean, right = by.get(("mean of rates", period)), by.get(("samples/time", period))
        if mean and right and (share := _ratio(mean, right) - 1) > APART:
            values = {"mean": mean.value, "reference": right.value, "share": share}
            steps = {"first": mean.first, "last": mean.last}
            yield None, Message("mean_of_rates", values | steps)
            break
    timed: tuple[Period, ...] = ("protocol", "warm")
    for period in timed:
        right, clock = by.get(("samples/time", period)), by.get(("clock", period))
        if not right or not clock or (right.first, right.last) != (clock.first, clock.last):
            continue
        apart = _ratio(clock, right) - 1
        if abs(apart) > CLOCK_APART + right.rounding + clock.rounding:
            values = {"reference": right.value, "clock": clock.value, "difference": apart}
            steps = {"first": right.first, "last": right.last}
            yield None, Message("clock_differs", values | steps)
            break
    slow = figures.slowest
    if slow and slow.share > max(SLOW, SLOW_TIMES * slow.steps / slow.of):
        params = {"share": slow.share, "steps": slow.steps, "of": slow.of}
        yield slow.line, Message("slow_print", params)
    for statistic in ("samples/time", "clock"):
        protocol, steady = by.get((statistic, "protocol")), by.get((statistic, "steady"))
        if protocol and steady and abs(share := _ratio(protocol, steady) - 1) > UNSTEADY:
            values = {"protocol": protocol.value, "steady": steady.value, "difference": share}
            steps = {"first": protocol.first, "last": protocol.last}
            yield None, Message("protocol_not_steady", values | steps)
            break


def _ratio(one: Figure, other: Figure) -> float:
    if one.per_device and other.per_device:
        return one.per_device / other.per_device
    return (one.throughput or 0.0) / (other.throughput or np.inf)


def _of_input(windows: Windows, figures: Figures) -> Located:
    """An input wait is called a limit only where steps that wait less are faster by as much:
    where an asynchronous loop waits is no proof of what limits it."""
    share = figures.input_share
    if not share or share <= WAIT:
        return
    from scipy.stats import kendalltau, theilslopes

    steps = pd.DataFrame({"wait": windows.rows["reader"] / windows.steps})
    steps["time"] = windows.rows["seconds"] / windows.steps
    steps = steps[windows.inside("warm", windows.rows["first"])].dropna()[-2000:]
    spread = steps["wait"].quantile(0.9) - steps["wait"].quantile(0.1)
    if len(steps) >= FEW and spread > LIMIT_SPREAD * steps["time"].median():
        tau = kendalltau(steps["wait"], steps["time"])
        slope = theilslopes(steps["time"], steps["wait"]).slope
        if tau.pvalue < 0.01 and 0.5 <= slope <= 1.5:
            yield None, Message("input_limit", {"share": share, "slope": float(slope)})
            return
    yield None, Message("input_wait", {"share": share})


def _of_prints(log: Log, windows: Windows) -> Located:
    rows, scope = windows.rows, RateScope.of(log)
    odd = np.flatnonzero((rows["rate"] <= 0) | np.isinf(rows["rate"]))
    if len(odd):
        yield int(rows["line"][odd[0]]), Message("odd_rates", {"count": len(odd)})
    of = 1 if scope.rate_of == "device" else scope.ranks
    if scope.samples and of and log.semantics.covers != "running":
        samples = rows["rate"] * rows["seconds"] / windows.steps
        samples, expected = samples[np.isfinite(samples)], scope.samples * of
        found = float(np.median(samples)) if len(samples) else expected
        if abs(found / expected - 1) > APART:
            yield None, Message("rate_not_time", {"samples": found, "batch": expected})
    negative = np.flatnonzero(rows["accuracy"] < 0)
    if len(negative):
        params = {"count": len(negative), "lowest": float(np.nanmin(rows["accuracy"]))}
        yield int(rows["line"][negative[0]]), Message("negative_accuracy", params)


def _of_training(log: Log, rows: dict[str, np.ndarray]) -> Located:
    """Whether it was training at all; the bounds are those of `perfkit.analysis.losses`."""
    if log.fact("mode") == "inference":
        return
    finite = np.flatnonzero(np.isfinite(rows["loss"]))
    # What is printed and no number is infinite.
    printed = ~np.isnan(rows["loss"]) | (len(finite) > 0)
    lost = np.flatnonzero(printed & (np.arange(len(printed)) > max(finite, default=-1)))
    if len(lost):
        yield int(rows["line"][lost[0]]), Message("loss_not_finite", {})
    losses = rows["loss"][finite]
    if not len(losses):
        return
    few = max(min(FEW, len(losses) // 2), 1)
    first, last = float(losses[:few].mean()), float(losses[-few:].mean())
    if (model := log.fact("model")) in MODELS:
        low, high = untrained_losses(str(model))
        earliest = float(losses[0])
        if rows["last"][finite[0]] <= WARMUP and not low <= earliest <= high:
            yield None, Message("first_loss", {"loss": earliest, "low": low, "high": high})
        if last > high:
            yield None, Message("last_loss", {"loss": last, "high": high})
    if len(losses) > 1 and losses.max() - losses.min() < STANDING:
        params = {"loss": float(losses.min()), "count": len(losses)}
        yield None, Message("constant_loss", params)
    elif len(losses) > 1 and last >= first:
        yield None, Message("loss_not_falling", {"first": first, "last": last})


def first_losses(figures: Figures) -> tuple[float, ...]:
    """The first losses of a log that are numbers."""
    losses = figures.windows.rows["loss"] if figures.windows else np.empty(0)
    return tuple(losses[np.isfinite(losses)][:ALIKE].tolist())


# Of several logs or claims together.


def together(
    logs: list[AuditedLog], losses: Iterable[tuple[float, ...]], claims: list[Claim]
) -> list[Finding]:
    """What several logs or claims show together; `losses` are the first of each log."""
    found = [*_same_files(logs), *_same_losses(logs, losses), *_super_linear(logs)]
    found += [*_mixed_statistics(claims), *_one_for_two(claims)]
    return [Finding(message.code, message.params) for message in found]


def _same_files(logs: list[AuditedLog]) -> Iterator[Message]:
    by_content: dict[str, dict[str, None]] = defaultdict(dict)
    for log in logs:
        by_content[log.sha256][log.name.partition("#")[0]] = None
    for names in by_content.values():
        if len(names) > 1:
            yield Message("same_file", {"files": [*names]})


def _same_losses(
    logs: list[AuditedLog], losses: Iterable[tuple[float, ...]]
) -> Iterator[Message]:
    """Files of different content that begin with the same losses."""
    alike: dict[tuple[float, ...], dict[str, str]] = defaultdict(dict)
    for log, begin in zip(logs, losses, strict=True):
        if len({*begin}) == ALIKE:
            alike[begin].setdefault(log.sha256, log.name)
    for begin, files in alike.items():
        if len(files) > 1:
            yield Message("same_losses", {"files": [*files.values()], "losses": [*begin]})


def _super_linear(logs: list[AuditedLog]) -> Iterator[Message]:
    alike: dict[tuple[Any, ...], list[tuple[float, float, str]]] = defaultdict(list)
    for log in logs:
        right = log.reference
        known = log.fact("model") is not None and log.fact("batch_size") is not None
        if known and right and right.throughput and right.per_device:
            keys = ("model", "framework", "precision", "batch_size", "accumulate", "gpu")
            ranks = right.throughput / right.per_device
            key = tuple(log.fact(key) for key in keys)
            alike[key].append((ranks, right.per_device, log.name))
    for some in alike.values():
        fewest, base, base_name = min(some)
        for ranks, device, name in some:
            if ranks > fewest and (share := device / base - 1) > APART:
                files = {"file": name, "base": base_name, "share": share}
                counts = {"ranks": round(ranks), "of": round(fewest)}
                yield Message("super_linear", files | counts)


def _mixed_statistics(claims: list[Claim]) -> Iterator[Message]:
    """Sides of a speed-up that no one statistic explains."""
    sides: dict[tuple[Any, ...], list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.table and claim.explanations:
            sides[claim.table, claim.gpu, claim.framework, claim.precision].append(claim)
    for (table, _gpu, framework, precision), some in sides.items():
        methods = [{one.figure.method for one in claim.explanations} for claim in some]
        if len(some) > 1 and not set.intersection(*methods):
            figures = {
                f"{c.topology}, {c.batch_size}": c.explanations[0].figure.model_dump()
                for c in some
            }
            place = {"table": table, "framework": framework, "precision": precision}
            yield Message("mixed_statistics", {**place, "figures": figures})


def _one_for_two(claims: list[Claim]) -> Iterator[Message]:
    places: dict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.log and claim.explanations:
            places[claim.log].append(claim.place)
    for log, found in places.items():
        if len(found) > 1:
            yield Message("one_for_two", {"file": log, "places": found})
