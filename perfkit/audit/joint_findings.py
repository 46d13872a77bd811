"""Findings about several logs together."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from perfkit.audit.audit import AuditedLog, LocatedFinding
from perfkit.audit.findings import APART
from perfkit.audit.statements import Finding, SameFile, SuperLinear

SAME_WORK = ("model", "framework", "precision", "batch_size", "accumulate", "gpu")
"""Facts that are equal in logs of the same work on different numbers of devices."""
Item = TypeVar("Item")


def joint_findings(logs: list[AuditedLog]) -> list[LocatedFinding]:
    """Return the findings about several logs together."""
    findings = [*_same_files(logs), *_super_linear(logs)]
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
