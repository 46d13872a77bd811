"""An audit in short, for a terminal and at the head of its page: a log's answer, several logs
side by side, claims and findings."""

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from perfkit.audit.audit import Audit, AuditedLog, LocatedFinding
from perfkit.audit.claim_alone import ClaimAlone
from perfkit.audit.samples import unit_of_figures
from perfkit.measuring.format import amount, number, percent, shortened
from perfkit.report.audit_answer import (
    answer_text,
    lacking_text,
    main_facts_text,
    model_texts,
    period_text,
    printed_row,
)
from perfkit.report.audit_text import (
    claim_counts,
    covers_text,
    method_text,
    reported_text,
    short_names,
    steps_text,
)
from perfkit.report.audited_claims import claimed_in_short
from perfkit.report.audited_logs import log_table
from perfkit.report.elements import (
    bullets,
    code,
    foreign,
    heading,
    joined,
    link,
    more,
    note,
    paragraph,
    strong,
    table,
)
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import labelled
from perfkit.report.text.statements import sentence

STEP_DIGITS = 5
"""Significant digits of a step's seconds."""
LONGEST_NAME = 60
"""Characters of a foreign name."""
LONGEST_IN_TABLE = 26
"""Characters of a log's name in a table of several."""
LONGEST_FINDING = 220
"""Characters of a finding's text."""
LONGEST_REASON = 300
"""Characters of the reason why a file was left out."""
MOST_PRINTED = 6
"""Quantities that a log prints, and throughputs that it reports, at most; the page has all."""
MOST_REPORTED = 2
"""Other figures that a log reports, at most."""
MOST_TRAININGS = 8
"""Trainings of a single file, at most."""
MOST_LEFT_OUT = 5
"""Files that were left out, at most."""
MOST_FINDINGS = 4
"""Findings about a single log, at most."""
ALL = "--all"
Names = Mapping[str, str]
"""Short names of logs."""


def audit_section(audit: Audit, *, everything: bool = False) -> Section:
    """Return an audit in short; with `everything`, all facts, statistics and findings."""
    names = short_names(audit.logs)
    section = Section()
    if audit.tables:
        section += paragraph(strong(", ".join(claim_counts(audit.claims))))
    section += claimed_in_short(audit)
    if len(audit.logs) == 1:
        section += _single_log(audit.logs[0], names, everything=everything)
    elif audit.logs:
        section += _several_logs(audit.logs, names, everything=everything)
    left_out = [shortened(reason, LONGEST_REASON) for reason in audit.left_out[:MOST_LEFT_OUT]]
    section += bullets(f"left out: {reason}" for reason in left_out)
    return section + more(len(audit.left_out) - MOST_LEFT_OUT, "--json")


def answers(audit: Audit) -> Section:
    """Return the answer of a single log, or a table of several."""
    if len(audit.logs) == 1:
        return answer_of_log(audit.logs[0]) + printed_quantities(audit.logs[0])
    return log_table(audit.logs, short_names(audit.logs))


def answer_of_log(log: AuditedLog) -> Section:
    """Return the throughput of a log, its operations, and what it rests on."""
    section = paragraph(strong(answer_text(log)))
    if log.answer and log.answer.model:
        speed, *formula = model_texts(log.answer.model)
        section += paragraph(speed) + note(*formula)
    return section + paragraph(lacking_text(log)) + note(main_facts_text(log))


def printed_quantities(log: AuditedLog, most: int | None = None) -> Section:
    """Return a table with a row for each quantity, or the first ones, that the lines of a log
    print."""
    rows = [printed_row(printed) for printed in log.printed[:most]]
    headings = [_("Printed by the log"), _("As"), _("First"), _("Median"), _("Last")]
    hidden = len(log.printed) - len(rows)
    return table(rows, headings, as_cards=True) + more(hidden, ALL)


def step_times(log: AuditedLog) -> Section:
    """Return a table of the seconds of a step, by period and by what they come from."""
    rows = []
    for time in log.step_times:
        seconds = [
            number(time.mean_seconds, STEP_DIGITS),
            number(time.median_seconds, STEP_DIGITS),
        ]
        rows.append([period_text(time), *seconds, str(time.steps)])
    headings = [_("Steps"), _("Mean (s/step)"), _("Median (s/step)"), _("Number of steps")]
    if log.step == "epoch":
        headings = [_("Epochs"), _("Mean (s)"), _("Median (s)"), _("Number of epochs")]
    return table(rows, headings, as_cards=True)


def figures(log: AuditedLog, most: int | None = None) -> Section:
    """Return a table of the statistics of a log, or of the first ones."""
    unit = unit_of_figures(log.facts, log.figures) or _("throughput")
    headings = [
        _("Statistic"),
        _("Range"),
        _("All devices (%(unit)s)") % {"unit": unit},
        _("One device (%(unit)s)") % {"unit": unit},
    ]
    rows = []
    for figure in log.figures[:most]:
        rates = [number(figure.throughput, 7), number(figure.per_device, 7)]
        rows.append([method_text(figure), steps_text(figure), *rates])
    return table(rows, headings, as_cards=True) + more(len(log.figures) - len(rows), ALL)


def finding(located: LocatedFinding, longest: int | None = None) -> Markup:
    """Return a finding as an item of a list: code line 12: sentence."""
    text = sentence(located.finding)
    if located.line:
        text = labelled(_("line %(line)d") % {"line": located.line}, text)
    return joined([code(located.code), shortened(text, longest) if longest else text])


def findings(logs: Sequence[AuditedLog], names: Names) -> Section:
    """Return the findings about each log, with their lines."""
    section = Section()
    for index, log in enumerate(logs, 1):
        if log.findings:
            name = link(f"#log{index}", foreign(names[log.name]))
            section += heading(name, f"findings{index}")
            section += bullets(map(finding, log.findings))
    return section


# Several logs.


def _several_logs(logs: Sequence[AuditedLog], names: Names, *, everything: bool) -> Section:
    """Return a row for each log, and their findings or the number of these by code."""
    shown = logs
    if len({log.sha256 for log in logs}) == 1 and not everything:
        shown = logs[:MOST_TRAININGS]
    short = {name: _without_middle(names[name], LONGEST_IN_TABLE) for name in names}
    section = log_table(shown, short) + more(len(logs) - len(shown), ALL)
    if everything:
        return section + findings(logs, names)
    codes = Counter(located.code for log in logs for located in log.findings)
    if codes:
        counts = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        section += note(f"Findings (--all shows them): {counts}")
    return section


def _without_middle(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the beginning and the end of a text that is longer."""
    if len(text) <= longest:
        return text
    end = longest // 2
    return f"{text[: longest - end - 1]}…{text[-end:]}"


# One log.


def _single_log(log: AuditedLog, names: Names, *, everything: bool) -> Section:
    """Return the answer of a log, what it rests on, and its findings."""
    about = f"{_without_middle(names[log.name])} ({log.format})"
    section = answer_of_log(log) + note(foreign(about))
    if everything:
        return section + details(log) + bullets(map(finding, log.findings))
    section += _reported(log) + printed_quantities(log, MOST_PRINTED)
    if not log.answer:
        section += figures(log, MOST_PRINTED)
    shown = log.findings[:MOST_FINDINGS]
    if shown:
        section += bullets(finding(located, LONGEST_FINDING) for located in shown)
    section += more(len(log.findings) - len(shown), ALL)
    counts = [(len(log.figures), "statistic"), (len(log.facts), "fact")]
    hidden = [amount(number, what) for number, what in counts if number]
    return section + note(f"{ALL} shows {' and '.join(hidden)}." if hidden else "")


def _reported(log: AuditedLog) -> Section:
    """Return the last other figures that a log reports, such as times."""
    reported = []
    for name, text in [*log.reported.items()][-MOST_REPORTED:]:
        value = shortened(reported_text(text), LONGEST_NAME // 2)
        reported.append(f"{_without_middle(name)} {value}")
    if not reported:
        return Section()
    reports = f"The log also reports: {', '.join(reported)}."
    return note(foreign(reports)) + more(len(log.reported) - len(reported), ALL)


def details(log: AuditedLog) -> Section:
    """Return what a log's lines mean, its facts, and all figures."""
    about = Markup("<strong>%s</strong>: %s") % (log.format, foreign(f"{log.source}."))
    section = paragraph(about, *_prints_texts(log))
    facts = []
    for name, fact in log.facts.items():
        facts.append(joined([code(name), f"{fact.value} ({sentence(fact.by)})"]))
    section += paragraph(joined(facts, "; "))
    reported = []
    for name, text in log.reported.items():
        reported.append(joined([code(name), reported_text(text)]))
    if reported:
        section += paragraph(_("The log also reports:"), joined(reported, "; "))
    section += note(f"SHA-256 {log.sha256}")
    return section + printed_quantities(log) + step_times(log) + figures(log)


def _prints_texts(log: AuditedLog) -> list[str]:
    """Return sentences about the meaning of a log's prints."""
    texts = []
    if log.has_rates and log.rate_of == "device":
        texts.append(_("Printed rates are per device."))
    elif log.has_rates:
        texts.append(_("Printed rates cover all devices."))
    texts.append(_("A printed line covers %(covers)s.") % {"covers": covers_text(log)})
    if log.input_share is not None:
        share = percent(log.input_share, 2)
        texts.append(_("Data wait: %(share)s of the time.") % {"share": share})
    return texts


# A claim without a log.


def claim_alone_section(claim: ClaimAlone) -> Section:
    """Return whether a claim without a log is possible, and what that rests on."""
    verdict = "impossible" if claim.is_impossible else "possible"
    if claim.needs:
        verdict = f"not judged; needs {', '.join(claim.needs)}"
    section = paragraph(strong(f"{claim.text}: {verdict}."))
    for reading in claim.readings:
        parts = [f"{number(reading.tflops)} TFLOP/s per device"] if reading.tflops else []
        parts += [f"MFU {percent(reading.mfu)}"] if reading.mfu else []
        parts += [] if reading.is_possible else ["impossible"]
        if parts:
            scope = "one device" if reading.of == "device" else "all devices"
            section += paragraph(f"As that of {scope}: {', '.join(parts)}.")
    if claim.formula:
        section += paragraph(f"FLOPs of training a token: {claim.formula}.")
    return section + paragraph(f"Dense peak of a device: {claim.peak}." if claim.peak else "")
