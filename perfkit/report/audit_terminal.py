"""An audit as text for a terminal: the answer first, within LINES for a single log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pprint import pformat
from typing import Literal

from perfkit.audit import dlperf
from perfkit.audit.audit import Audit, AuditedLog, LocatedFinding
from perfkit.audit.claim import GIVEN, Claim
from perfkit.audit.samples import unit_of_figures
from perfkit.audit.statements import DIGITS
from perfkit.core.format import amount, number, percent, shortened
from perfkit.report.audit_answer import (
    answer_text,
    lacking_text,
    main_facts_text,
    model_texts,
    printed_row,
)
from perfkit.report.audit_text import (
    answer_steps,
    claim_counts,
    claim_lines,
    covers_text,
    difference_text,
    figure_rows,
    finding_text,
    other_work,
    reference_text,
    reported_text,
    short_names,
    state_text,
    wait_text,
)
from perfkit.report.audited_logs import without_middle
from perfkit.report.logs_terminal import logs_lines
from perfkit.report.text.terminal import WIDTH, fitted, tabulated, wrapped

LINES = 25
"""Lines about a single log, at most, unless everything is asked for."""
LONGEST_NAME = 60
"""Characters of a log's name beside its answer."""
LONGEST_REPORTED = 90
"""Characters of a figure that a log reports, with its name."""
LONGEST_FINDING = 220
"""Characters of a finding's text: three lines."""
LONGEST_REASON = 300
"""Characters of the reason why a file was left out."""
MOST_PRINTED = 6
"""Quantities that a log prints, at most; the page has all."""
LONGEST_FACTS = 160
"""Characters of a log's facts beside its answer."""
MOST_LEFT_OUT = 5
"""Files that were left out, at most."""
MOST_JOINT = 5
"""Findings about several logs together, at most."""
MOST_RATES = 8
"""Throughputs that a log reports itself, at most, if it reports those of several trainings."""
LONGEST_RATE = 66
"""Characters of the name of such a throughput."""
REPORTED = 2
"""Other figures of a log that are shown, at most."""
Names = Mapping[str, str]
"""Short names of logs."""


def audit_text(audit: Audit, *, everything: bool = False) -> str:
    """Return an audit in lines of 80 columns, with `everything` that is folded otherwise. The
    JSON has all explanations and figures."""
    names = short_names(audit.logs)
    claims: dict[str | None, list[Claim]] = {}
    for claim in audit.claims:
        claims.setdefault(claim.table, []).append(claim)
    lines = []
    if None in claims:
        lines += ["The claim:", *_claims(claims[None], audit, names), ""]
    if len(audit.logs) == 1:
        (log,) = audit.logs
        lines += _log(log, names[log.name], everything=everything)
    elif audit.logs:
        lines += logs_lines(audit, names, everything=everything)
    for table in dict.fromkeys(audit.tables):
        if table in claims:
            lines += ["", *fitted(f"{table}: {', '.join(claim_counts(claims[table]))}")]
            lines += _claims(claims[table], audit, names)
    if everything or len(audit.logs) > 1:
        lines += _joint_findings(audit, names, everything=everything)
    if audit.dlperf:
        variants: tuple[Literal["mean", "median"], ...] = ("mean", "median")
        for variant in variants:
            summary = pformat(dlperf.summary(audit.dlperf, variant))
            lines += ["", f"DLPerf's summary ({variant}):", summary]
    lines += _left_out(audit.left_out)
    return "\n".join(lines).strip("\n")


def _left_out(reasons: Sequence[str]) -> list[str]:
    lines = []
    for reason in reasons[:MOST_LEFT_OUT]:
        lines += fitted(f"left out: {shortened(reason, LONGEST_REASON)}")
    if len(reasons) > MOST_LEFT_OUT:
        lines.append(f"left out: {amount(len(reasons) - MOST_LEFT_OUT, 'more file')}")
    return lines


# One log.


def _log(log: AuditedLog, name: str, *, everything: bool) -> list[str]:
    """Return the answer of the log with this short name, what it rests on, and its findings, in
    at most LINES unless `everything` is asked for."""
    lines = fitted(answer_text(log))
    if log.answer and log.answer.model:
        for text in model_texts(log.answer.model):
            lines += fitted(text, "  ")
    lacking = lacking_text(log)
    if lacking:
        lines += fitted(lacking, "  ")
    about = f"{without_middle(name)} ({log.format})"
    facts = main_facts_text(log)
    if facts:
        about += f": {shortened(facts, LONGEST_FACTS)}"
    lines += ["", *fitted(about, "  ")]
    lines += _reported(log)
    if not log.answer:
        lines += _reported_rates(log)
    lines += _printed(log)
    if everything:
        return [*lines, *_everything(log), *_every_finding(log)]
    folded = _folded(log)
    room = LINES - len(lines) - len(folded)
    return lines + findings_within(log.findings, room) + folded


def _reported(log: AuditedLog) -> list[str]:
    """Return other figures that a log reports, such as times."""
    if not log.reported:
        return []
    reported = []
    for name, text in [*log.reported.items()][-REPORTED:]:
        value = shortened(reported_text(text), LONGEST_NAME // 2)
        reported.append(f"{without_middle(name, LONGEST_REPORTED - len(value) - 1)} {value}")
    text = f"also reported: {', '.join(reported)}"
    if len(log.reported) > REPORTED:
        text += f" and {len(log.reported) - REPORTED} more"
    return fitted(text, "  ")


def _reported_rates(log: AuditedLog) -> list[str]:
    """Return a row for each throughput that a log reports itself, of several trainings."""
    figures = log.figures[:MOST_RATES]
    if not figures:
        return []
    qualifier = _common_qualifier([figure.name for figure in figures])
    names = [figure.name.removesuffix(f" ({qualifier})") for figure in figures]
    short = [without_middle(name, LONGEST_RATE) for name in names]
    if len({*short}) < len({*names}):
        # Whole names take two lines each.
        figures, short = figures[: MOST_RATES // 2], names[: MOST_RATES // 2]
    rows = [[name] for name in short]
    unit = ", ".join(filter(None, [unit_of_figures(log.facts, figures), qualifier]))
    headings = [f"reported by the log ({unit})" if unit else "reported by the log"]
    columns = {
        "all devices": [figure.throughput for figure in figures],
        "one device": [figure.per_device for figure in figures],
    }
    for heading, rates in columns.items():
        if any(rates):
            headings.append(heading)
            for row, rate in zip(rows, rates, strict=True):
                row.append(number(rate, DIGITS))
    lines = ["", *tabulated(rows, headings)]
    more = len(log.figures) - len(rows)
    return [*lines, f"and {more} more"] if more else lines


def _common_qualifier(names: Sequence[str]) -> str:
    """Return what all names have in parentheses at their end: median of 3; empty if they differ
    in it. A name may have others before."""
    qualifiers = {_qualifier(name) for name in names}
    return qualifiers.pop() if len(qualifiers) == 1 else ""


def _qualifier(name: str) -> str:
    """Return what a name has in parentheses at its end; empty if it has none there."""
    _name, opening, end = name.rpartition(" (")
    return end.removesuffix(")") if opening and end.endswith(")") else ""


def _printed(log: AuditedLog) -> list[str]:
    """Return a row for each quantity that the log's lines print."""
    if not log.printed:
        return []
    rows = [printed_row(printed) for printed in log.printed[:MOST_PRINTED]]
    headings = ["printed by the log", "as", "first", "median", "last"]
    lines = ["", *tabulated(rows, headings, ["as"])]
    more = len(log.printed) - MOST_PRINTED
    if more > 0:
        lines.append(f"and {more} more")
    return lines


def _folded(log: AuditedLog) -> list[str]:
    """Return what is left out, and how to see it."""
    counts = []
    for count, noun in ((len(log.figures), "statistic"), (len(log.facts), "fact")):
        if count:
            counts.append(amount(count, noun))
    return ["", f"--all shows {' and '.join(counts)}."] if counts else []


def findings_within(findings: Sequence[LocatedFinding], room: int) -> list[str]:
    """Return the first finding of each code with the number of such findings, in at most `room`
    lines; the findings that have no room are counted by code."""
    by_code: dict[str, list[LocatedFinding]] = {}
    for located in findings:
        by_code.setdefault(located.code, []).append(located)
    lines: list[str] = []
    left = Counter({code: len(same) for code, same in by_code.items()})
    # A blank line and the line of those that have no room.
    room -= 2
    for code, (first, *_others) in by_code.items():
        text = _finding_text(first, left[code])
        of_finding = fitted(text, "  ")
        if len(lines) + len(of_finding) > room:
            break
        lines += of_finding
        del left[code]
    if left:
        counts = ", ".join(f"{count} {code}" for code, count in left.items())
        lines.append(f"  more findings: {shortened(counts, WIDTH - 20)}")
    return ["", *lines] if lines else []


def _finding_text(located: LocatedFinding, count: int) -> str:
    line = f"line {located.line}: " if located.line else ""
    text = f"{located.code}: {line}{finding_text(located.finding, {})}"
    text = shortened(text, LONGEST_FINDING)
    return f"{text} (and {count - 1:,} more)" if count > 1 else text


def _everything(log: AuditedLog) -> list[str]:
    """Return the facts and all statistics of a log."""
    rates = ""
    if log.has_rates:
        devices = "one device" if log.rate_of == "device" else "all devices"
        rates = f"printed rates are of {devices}; "
    facts = ", ".join(f"{name} {fact.value}" for name, fact in log.facts.items())
    lines = ["", *fitted(f"{rates}a printed line covers {covers_text(log)}", "  ")]
    lines += fitted(f"facts: {facts}", "  ")
    if log.reported:
        texts = [f"{name} {reported_text(text)}" for name, text in log.reported.items()]
        reported = ", ".join(texts)
        lines += fitted(f"reported: {reported}", "  ")
    reference = log.reference
    if reference and reference.wait_share is not None:
        steps = f"{reference.first}–{reference.last}"
        of_all = percent(log.input_share, 2)
        wait = wait_text(reference)
        lines.append(f"  data wait: {wait} of steps {steps}, {of_all} of all steps")
    rows = figure_rows(log)
    if rows:
        headings = ["statistic", "of", "all devices", "one device"]
        lines += ["", *tabulated(rows, headings, folded=2)]
    return lines


def _every_finding(log: AuditedLog) -> list[str]:
    if not log.findings:
        return []
    return ["", "Findings:", *_finding_lines(log.findings, {})]


# Claims.


def _claims(claims: Iterable[Claim], audit: Audit, names: Names) -> list[str]:
    logs = {log.name: log for log in audit.logs}
    lines = []
    for claim in claims:
        if claim.log:
            lines += _claim(claim, logs[claim.log], names)
    return lines


def _claim(claim: Claim, log: AuditedLog, names: Names) -> list[str]:
    parts = [claim.text, state_text(claim)]
    if claim.place != GIVEN:
        parts.append(claim.place.removeprefix(f"{claim.table}: "))
    details = claim_lines(claim)
    if claim.table:
        details = [*filter(None, [f"log {names[log.name]}", other_work(claim, log)]), *details]
    if claim.reference:
        difference = difference_text(claim.reference_difference)
        answer = [reference_text(claim), difference, answer_steps(log)]
        details.append(f"the log's answer: {', '.join(filter(None, answer))}")
    lines = [wrapped("  ".join(parts), "  ")]
    return lines + [wrapped(detail, "    ") for detail in details]


# Findings.


def _joint_findings(audit: Audit, names: Names, *, everything: bool) -> list[str]:
    """Return the findings about several logs or numbers together, and those about each log or,
    unless `everything` is asked for, their number by code."""
    lines = []
    if audit.findings:
        lines += ["", "Findings about several logs or numbers together:"]
        findings = audit.findings if everything else audit.findings[:MOST_JOINT]
        lines += _finding_lines(findings, names)
        more = len(audit.findings) - len(findings)
        if more:
            lines.append(f"  and {more} more")
    if len(audit.logs) == 1:
        return lines
    if everything:
        for log in audit.logs:
            if log.findings:
                lines += ["", *fitted(names[log.name]), *_finding_lines(log.findings, names)]
        return lines
    codes = Counter(located.code for log in audit.logs for located in log.findings)
    if codes:
        counts = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        lines += ["", *fitted(f"Findings about single logs (--all shows them): {counts}")]
    return lines


def _finding_lines(findings: Iterable[LocatedFinding], names: Names) -> list[str]:
    lines = []
    for located in findings:
        line = f"line {located.line}: " if located.line else ""
        text = f"{located.code}: {line}{finding_text(located.finding, names)}"
        lines += fitted(text, "  ")
    return lines
