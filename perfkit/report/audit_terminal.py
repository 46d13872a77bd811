"""An audit as text for a terminal: the answer first, within LINES for a single log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pprint import pformat
from typing import Literal

from perfkit.audit import dlperf
from perfkit.audit.audit import Audit, AuditedLog, LocatedFinding
from perfkit.audit.claim import GIVEN, Claim
from perfkit.audit.claim_alone import ClaimAlone
from perfkit.audit.samples import unit_of_figures
from perfkit.audit.statements import DIGITS
from perfkit.measuring.format import amount, number, percent, shortened
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
    other_work,
    reference_text,
    reported_text,
    short_names,
    state_text,
)
from perfkit.report.audited_logs import log_table
from perfkit.report.text.statements import sentence
from perfkit.report.text.terminal import fitted, tabulated, wrapped

LINES = 25
"""Lines about a single log, at most, unless everything is asked for."""
LONGEST_NAME = 60
"""Characters of a foreign name."""
LONGEST_FINDING = 220
"""Characters of a finding's text: three lines."""
LONGEST_REASON = 300
"""Characters of the reason why a file was left out."""
LONGEST_FACTS = 160
"""Characters of a log's facts beside its answer."""
MOST_PRINTED = 6
"""Quantities that a log prints, and throughputs that it reports, at most; the page has all."""
MOST_REPORTED = 2
"""Other figures that a log reports, at most."""
MOST_TRAININGS = 8
"""Trainings of a single file, at most."""
MOST_LEFT_OUT = 5
"""Files that were left out, at most."""
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
        lines += _several(audit.logs, names, everything=everything)
    for table in dict.fromkeys(audit.tables):
        if table in claims:
            lines += ["", *fitted(f"{table}: {', '.join(claim_counts(claims[table]))}")]
            lines += _claims(claims[table], audit, names)
    if audit.dlperf:
        variants: tuple[Literal["mean", "median"], ...] = ("mean", "median")
        for variant in variants:
            summary = pformat(dlperf.summary(audit.dlperf, variant))
            lines += ["", f"DLPerf's summary ({variant}):", summary]
    for reason in audit.left_out[:MOST_LEFT_OUT]:
        lines += fitted(f"left out: {shortened(reason, LONGEST_REASON)}")
    lines += _more(len(audit.left_out) - MOST_LEFT_OUT, "more file left out")
    return "\n".join(lines).strip("\n")


def _more(count: int, noun: str, plural: str = "") -> list[str]:
    return [f"and {amount(count, noun, plural)}"] if count > 0 else []


def without_middle(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the beginning and the end of a text that is longer."""
    if len(text) <= longest:
        return text
    end = longest // 2
    return f"{text[: longest - end - 1]}…{text[-end:]}"


# Several logs.


def _several(logs: Sequence[AuditedLog], names: Names, *, everything: bool) -> list[str]:
    """Return a row for each log, and their findings or, unless `everything` is asked for, the
    number of these by code."""
    shown = logs
    if len({log.sha256 for log in logs}) == 1 and not everything:
        shown = logs[:MOST_TRAININGS]
    headings, rows = log_table(shown, names)
    short_rows = [[without_middle(name), *cells] for name, *cells in rows]
    lines = tabulated(short_rows, headings, ["Unit"])
    lines += _more(len(logs) - len(shown), "more training (--all)", "more trainings (--all)")
    if everything:
        for log in logs:
            if log.findings:
                lines += ["", *fitted(names[log.name]), *_finding_lines(log.findings)]
        return lines
    codes = Counter(located.code for log in logs for located in log.findings)
    if codes:
        counts = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        lines += ["", *fitted(f"Findings (--all shows them): {counts}")]
    return lines


# One log.


def _log(log: AuditedLog, name: str, *, everything: bool) -> list[str]:
    """Return the answer of the log with this short name, what it rests on, and its findings, in
    at most LINES unless `everything` is asked for."""
    lines = fitted(answer_text(log))
    model = log.answer.model if log.answer else None
    for text in (*(model_texts(model) if model else ()), lacking_text(log)):
        lines += fitted(text, "  ")
    about = f"{without_middle(name)} ({log.format})"
    facts = main_facts_text(log)
    if facts:
        about += f": {shortened(facts, LONGEST_FACTS)}"
    most = len(log.reported) if everything else MOST_REPORTED
    lines += ["", *fitted(about, "  "), *_reported(log, most)]
    if not log.answer:
        lines += _reported_rates(log)
    lines += _printed(log)
    if everything:
        findings = ["", "Findings:", *_finding_lines(log.findings)] if log.findings else []
        return [*lines, *_everything(log), *findings]
    folded = f"--all shows {amount(len(log.figures), 'statistic')} and "
    folded += f"{amount(len(log.facts), 'fact')}."
    findings = _findings_within(log.findings, LINES - len(lines) - 4)
    return [*lines, *findings, "", folded]


def _reported(log: AuditedLog, most: int) -> list[str]:
    """Return the last other figures that a log reports, such as times."""
    if not log.reported:
        return []
    reported = []
    for name, text in [*log.reported.items()][-most:]:
        value = shortened(reported_text(text), LONGEST_NAME // 2)
        reported.append(f"{without_middle(name)} {value}")
    reported += _more(len(log.reported) - most, "more figure")
    return fitted(f"also reported: {', '.join(reported)}", "  ")


def _reported_rates(log: AuditedLog) -> list[str]:
    """Return a row for each throughput that a log reports itself, of several trainings."""
    if not log.figures:
        return []
    rows = []
    for figure in log.figures[:MOST_PRINTED]:
        rates = [number(rate, DIGITS) for rate in (figure.throughput, figure.per_device)]
        rows.append([shortened(figure.name, LONGEST_FACTS), *rates])
    unit = unit_of_figures(log.facts, log.figures)
    name = f"reported by the log ({unit})" if unit else "reported by the log"
    lines = ["", *tabulated(rows, [name, "all devices", "one device"])]
    return [*lines, *_more(len(log.figures) - len(rows), "more throughput")]


def _printed(log: AuditedLog) -> list[str]:
    """Return a row for each quantity that the log's lines print."""
    if not log.printed:
        return []
    rows = [printed_row(printed) for printed in log.printed[:MOST_PRINTED]]
    headings = ["printed by the log", "as", "first", "median", "last"]
    more = _more(len(log.printed) - MOST_PRINTED, "more quantity", "more quantities")
    return ["", *tabulated(rows, headings, ["as"]), *more]


def _findings_within(findings: Sequence[LocatedFinding], room: int) -> list[str]:
    """Return the findings in at most `room` lines, the first ones if there are more."""
    lines: list[str] = []
    for shown, located in enumerate(findings):
        text = fitted(shortened(_finding_text(located), LONGEST_FINDING), "  ")
        if len(lines) + len(text) > room:
            lines += [f"  {line}" for line in _more(len(findings) - shown, "more finding")]
            break
        lines += text
    return ["", *lines] if lines else []


def _finding_lines(findings: Iterable[LocatedFinding]) -> list[str]:
    return [line for located in findings for line in fitted(_finding_text(located), "  ")]


def _finding_text(located: LocatedFinding) -> str:
    line = f"line {located.line}: " if located.line else ""
    return f"{located.code}: {line}{sentence(located.finding)}"


def _everything(log: AuditedLog) -> list[str]:
    """Return the facts and all statistics of a log."""
    rates = ""
    if log.has_rates:
        devices = "one device" if log.rate_of == "device" else "all devices"
        rates = f"printed rates are of {devices}; "
    facts = ", ".join(f"{name} {fact.value}" for name, fact in log.facts.items())
    lines = ["", *fitted(f"{rates}a printed line covers {covers_text(log)}", "  ")]
    lines += fitted(f"facts: {facts}", "  ")
    if log.input_share is not None:
        lines.append(f"  data wait: {percent(log.input_share, 2)} of all steps")
    headings = ["statistic", "of", "all devices", "one device"]
    rows = figure_rows(log)
    return [*lines, "", *tabulated(rows, headings, folded=2)] if rows else lines


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


def claim_alone_text(claim: ClaimAlone) -> str:
    """Return whether a claim without a log is possible, and what that rests on."""
    verdict = "impossible" if claim.is_impossible else "possible"
    if claim.needs:
        verdict = f"not judged; needs {', '.join(claim.needs)}"
    lines = [f"{claim.text}: {verdict}."]
    for reading in claim.readings:
        parts = [f"{number(reading.tflops)} TFLOP/s per device"] if reading.tflops else []
        parts += [f"MFU {percent(reading.mfu)}"] if reading.mfu else []
        parts += [] if reading.is_possible else ["impossible"]
        if parts:
            scope = "one device" if reading.of == "device" else "all devices"
            lines.append(f"As that of {scope}: {', '.join(parts)}.")
    if claim.formula:
        lines.append(f"FLOPs of training a token: {claim.formula}.")
    if claim.peak:
        lines.append(f"Dense peak of a device: {claim.peak}.")
    return "\n".join(wrapped(line) for line in lines)
