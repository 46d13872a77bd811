"""An audit as text for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from pprint import pformat
from typing import Literal

from perfkit.audit import dlperf
from perfkit.audit.audit import Audit, AuditedLog, Claim, LocatedFinding
from perfkit.audit.statements import DIGITS
from perfkit.core.format import number, percent
from perfkit.report.audit_text import (
    STATES,
    covers_text,
    difference_text,
    explanation_lines,
    figure_rows,
    figure_text,
    finding_text,
    short_names,
    stage_text,
    state_text,
    steps_text,
    wait_text,
)
from perfkit.report.text.terminal import tabulated, wrapped

REPORTED = 12
"""Other figures of a log that are shown, at most."""
Names = Mapping[str, str]
"""Short names of logs."""


def audit_text(audit: Audit) -> str:
    """Return an audit in lines of 80 columns. The JSON has all explanations and figures."""
    names = short_names(audit.logs)
    claims: dict[str | None, list[Claim]] = {}
    for claim in audit.claims:
        claims.setdefault(claim.table, []).append(claim)
    lines = []
    if None in claims:
        lines += ["The claim:", *_claims(claims[None], names), ""]
    if len(audit.logs) == 1:
        lines += _log(audit.logs[0])
    elif audit.logs:
        lines += _logs(audit.logs, names)
    for table in dict.fromkeys(audit.tables):
        if table in claims:
            lines += ["", f"{table}: {_counts(claims[table])}"]
            lines += _claims(claims[table], names)
    lines += _findings(audit, names)
    if audit.dlperf:
        variants: tuple[Literal["mean", "median"], ...] = ("mean", "median")
        for variant in variants:
            summary = pformat(dlperf.summary(audit.dlperf, variant))
            lines += ["", f"DLPerf's summary ({variant}):", summary]
    lines += [wrapped(f"left out: {reason}") for reason in audit.left_out]
    return "\n".join(lines).strip("\n")


def _log(log: AuditedLog) -> list[str]:
    """Return the facts and all figures of a single log."""
    rates = ""
    if log.has_rates:
        devices = "one device" if log.rate_of == "device" else "all devices"
        rates = f"printed rates are of {devices}; "
    facts = ", ".join(f"{name} {fact.value}" for name, fact in log.facts.items())
    lines = [
        wrapped(log.name),
        wrapped(f"{log.format}; {rates}a print covers {covers_text(log)}", "  "),
        wrapped(facts, "  "),
    ]
    if log.reported:
        reported = [f"{name} {text}" for name, text in log.reported.items()]
        text = f"also reported: {', '.join(reported[-REPORTED:])}"
        if len(reported) > REPORTED:
            text += f" and {len(reported) - REPORTED} more"
        lines.append(wrapped(text, "  "))
    reference = log.reference
    if reference and reference.wait_share is not None:
        steps = f"{reference.first}–{reference.last}"
        of_all = percent(log.input_share, 2)
        lines.append(
            f"  data wait: {wait_text(reference)} of steps {steps}, {of_all} of all steps"
        )
    lines.append("")
    rows = figure_rows(log)
    if rows:
        lines += tabulated(rows, ["statistic", "of", "all devices", "one device"], folded=2)
    return lines


def _logs(logs: Sequence[AuditedLog], names: Names) -> list[str]:
    rows = []
    for log in logs:
        value, steps, reference = "–", "–", log.reference
        if reference:
            value = number(reference.value, DIGITS)
            steps = f"{reference.first}–{reference.last}"
            if not reference.throughput:
                value += " each"
        findings = str(len(log.findings))
        rows.append((names[log.name], value, steps, wait_text(reference), findings))
    heading = f"{len(logs)} logs: samples / time and data wait over the steps shown"
    columns = ["log", "samples / time", "steps", "waits", "findings"]
    return [wrapped(heading), *tabulated(rows, columns)]


def _counts(claims: Sequence[Claim]) -> str:
    """Return the number of claims in each state: 3 reproduced, 1 near."""
    states = [claim.state for claim in claims]
    return ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)


def _claims(claims: Iterable[Claim], names: Names) -> list[str]:
    lines = []
    for claim in claims:
        if claim.state != "no log":
            lines += _claim(claim, names)
    return lines


def _claim(claim: Claim, names: Names) -> list[str]:
    place = claim.place.removeprefix(f"{claim.table}: ")
    lines = [wrapped(f"{claim.text}  {state_text(claim)}  {place}", "  ")]
    details = []
    if claim.table and claim.log:
        details.append(f"log {names[claim.log]}")
    details += explanation_lines(claim, "= ")
    if claim.closest and not claim.explanations:
        figure, value = figure_text(claim.closest), number(claim.closest.value, DIGITS)
        difference = difference_text(claim.difference)
        details.append(f"closest: {figure}: {value}, {difference}; {claim.tried} figures tried")
    for stage in claim.waterfall[1:]:
        name = stage_text(stage.stage)
        if stage.figure:
            name += f" ({steps_text(stage.figure)})"
        value, difference = number(stage.value, DIGITS), difference_text(stage.difference)
        details.append(f"-> {name}: {value}, {difference}")
    if claim.reference and claim.reference.wait_share is not None:
        details.append(f"data wait in these steps: {wait_text(claim.reference)}")
    lines += [wrapped(detail, "    ") for detail in details]
    return lines + _finding_lines(claim.findings, names)


def _findings(audit: Audit, names: Names) -> list[str]:
    lines = []
    for log in audit.logs:
        if log.findings:
            lines += [wrapped(names[log.name], "  "), *_finding_lines(log.findings, names)]
    if audit.findings:
        lines.append("  several logs or numbers together")
        lines += _finding_lines(audit.findings, names)
    return ["", "Findings:", *lines] if lines else []


def _finding_lines(findings: Iterable[LocatedFinding], names: Names) -> list[str]:
    lines = []
    for located in findings:
        line = f"line {located.line}: " if located.line else ""
        text = f"{located.code}: {line}{finding_text(located.finding, names)}"
        lines.append(wrapped(text, "    "))
    return lines
