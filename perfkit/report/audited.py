"""The sections on an audit: claimed numbers beside what their logs give."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import get_args

from perfkit.audit.sentences import (
    chance_words,
    difference_words,
    explanation_words,
    finding_words,
    range_words,
    state_words,
    value_of,
    way_words,
)
from perfkit.audit.stored import Audit, Claim, Finding, State, read_audit
from perfkit.config import resolved_path
from perfkit.report.rendering import Section, render
from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES


@dataclass(frozen=True)
class Audited:
    """What the sections speak of: the audit in `folder`."""

    folder: Path
    audit: Audit

    @classmethod
    def of(cls, folder: str | Path) -> "Audited":
        """Read the audit; a relative path starts at the checkout. Raises ResultError."""
        place = resolved_path(str(folder))
        return cls(place, read_audit(place))

    @property
    def created(self) -> str:
        return self.audit.created

    @property
    def title(self) -> str:
        return _("Audit: %(label)s") % {"label": self.audit.label}

    def finding_in_short(self, finding: Finding) -> str:
        """What was seen, with the files' own names alone."""
        words = finding_words(finding)
        for log in self.audit.logs:
            words = words.replace(log.name, file_of(log.name))
        return words

    @property
    def states(self) -> dict[State, int]:
        """How many claimed numbers came out how, as State orders them."""
        counts = Counter(claim.state for claim in self.audit.claims)
        return {state: counts[state] for state in get_args(State) if counts[state]}


def audit_headline(audited: Audited) -> Section:
    """How many claimed numbers were reproduced, and from what."""
    audit = audited.audit
    return render("audit_headline.html.j2", audited=audited, audit=audit, words=state_words)


def audit_claims(audited: Audited) -> Section:
    """Each claimed number beside its recomputation; at the end those that no log stands at."""
    parts: dict[str, list[Claim]] = {}
    without: dict[str, list[Claim]] = {}
    for claim in audited.audit.claims:
        if claim.log:
            name = " · ".join(filter(None, (claim.table, claim.gpu, claim.precision)))
            parts.setdefault(name or claim.place, []).append(claim)
        else:
            without.setdefault(claim.table or claim.place, []).append(claim)
    return render(
        "audit_claims.html.j2",
        parts=parts,
        without=without,
        numbers={log.name: number for number, log in enumerate(audited.audit.logs, 1)},
        row_words=row_words,
        file_of=file_of,
        state_words=state_words,
        explanation_words=explanation_words,
        way_words=way_words,
        range_words=range_words,
        value_of=value_of,
        difference_words=difference_words,
        chance_words=chance_words,
        finding_words=finding_words,
    )


def row_words(claim: Claim) -> str:
    """What tells a claimed number from the others of its table and part."""
    if not claim.framework:
        return claim.place
    batch = _("batch %(batch)d") % {"batch": claim.batch_size}
    return f"{FRAMEWORK_NAMES[claim.framework]}, {claim.topology}, {batch}"


def file_of(name: str) -> str:
    """The file's own name."""
    return PurePath(name).name


def audit_findings(audited: Audited) -> Section:
    """What was seen, by file and line."""
    audit = audited.audit
    return render(
        "audit_findings.html.j2",
        together=audit.findings,
        logs=[(n, log) for n, log in enumerate(audit.logs, 1) if log.findings],
        words=audited.finding_in_short,
        file_of=file_of,
    )


def audit_logs(audited: Audited) -> Section:
    """Each log: what it tells, what its figures mean, and every one of them."""
    return render(
        "audit_logs.html.j2",
        audit=audited.audit,
        way_words=way_words,
        range_words=range_words,
    )


def audit_command(audited: Audited) -> Section:
    """The command that makes the audit again."""
    return render("audit_command.html.j2", audit=audited.audit)
