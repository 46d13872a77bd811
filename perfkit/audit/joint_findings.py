"""Findings about several logs or claims together."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from perfkit.audit.audit import AuditedLog, Claim, LocatedFinding
from perfkit.audit.findings import APART
from perfkit.audit.statements import Finding, MixedStatistics, OneForTwo, SameFile, SuperLinear

SAME_WORK = ("model", "framework", "precision", "batch_size", "accumulate", "gpu")
"""Facts that are equal in logs of the same work on different numbers of devices."""
Item = TypeVar("Item")


def joint_findings(logs: list[AuditedLog], claims: list[Claim]) -> list[LocatedFinding]:
    """Return the findings about several logs or claims together."""
    findings = [*_same_files(logs), *_super_linear(logs)]
    findings += [*_mixed_statistics(claims), *_one_for_two(claims)]
    return [LocatedFinding(finding=finding) for finding in findings]


def _groups(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Return the groups of two or more items with equal keys."""
    groups: dict[Hashable, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return [group for group in groups.values() if len(group) > 1]


def _same_files(logs: list[AuditedLog]) -> Iterator[Finding]:
    for same in _groups(logs, lambda log: log.sha256):
        # Trainings of one file have the same content, of course.
        names = [re.sub(r"#\d+$", "", log.name) for log in same]
        files = [*dict.fromkeys(names)]
        if len(files) > 1:
            yield SameFile(files=files)


class Scale(NamedTuple):
    """The throughput of one device in a log of several."""

    ranks: float
    per_device: float
    log: AuditedLog


def _scales(logs: list[AuditedLog]) -> Iterator[Scale]:
    for log in logs:
        reference = log.reference
        if not reference or not reference.throughput or not reference.per_device:
            continue
        if "model" in log.facts and "batch_size" in log.facts:
            ranks = reference.throughput / reference.per_device
            yield Scale(ranks, reference.per_device, log)


def _super_linear(logs: list[AuditedLog]) -> Iterator[Finding]:
    for same in _groups(_scales(logs), lambda scale: tuple(map(scale.log.fact, SAME_WORK))):
        base = min(same, key=lambda scale: (scale.ranks, scale.per_device))
        for scale in same:
            share = scale.per_device / base.per_device - 1
            if scale.ranks > base.ranks and share > APART:
                yield SuperLinear(
                    file=scale.log.name,
                    base=base.log.name,
                    share=share,
                    ranks=round(scale.ranks),
                    of=round(base.ranks),
                )


def _mixed_statistics(claims: list[Claim]) -> Iterator[Finding]:
    """Find speed-ups whose numbers no single statistic explains."""
    explained = [claim for claim in claims if claim.table and claim.explanations]
    for part in _groups(explained, lambda c: (c.table, c.gpu, c.framework, c.precision)):
        methods = []
        for claim in part:
            methods.append({explanation.figure.method for explanation in claim.explanations})
        if set.intersection(*methods):
            continue
        figures = {}
        for claim in part:
            place = f"{claim.topology}, {claim.batch_size}"
            figures[place] = claim.explanations[0].figure
        yield MixedStatistics(
            table=part[0].table or "",
            framework=part[0].framework or "",
            precision=part[0].precision or "",
            figures=figures,
        )


def _one_for_two(claims: list[Claim]) -> Iterator[Finding]:
    explained = [claim for claim in claims if claim.log and claim.explanations]
    for same in _groups(explained, lambda claim: claim.log):
        yield OneForTwo(file=same[0].log or "", places=[claim.place for claim in same])
