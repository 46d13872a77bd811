"""The answers of an audit as sections of its page: one log's throughput and what its lines
print, or several logs side by side."""

from perfkit.audit.audit import Audit, AuditedLog
from perfkit.measuring.format import number
from perfkit.report.audit_answer import (
    answer_text,
    lacking_text,
    main_facts_text,
    model_texts,
    period_text,
    printed_row,
)
from perfkit.report.audit_text import short_names
from perfkit.report.audited_logs import log_table
from perfkit.report.elements import note, paragraph, strong, table
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _

DIGITS = 5
"""Significant digits of a step's seconds."""


def answers(audit: Audit) -> Section:
    """Return the answer of a single log, or a table of several."""
    if len(audit.logs) == 1:
        return answer_of_log(audit.logs[0]) + printed_quantities(audit.logs[0])
    if not audit.logs:
        return Section()
    logs = log_table(audit.logs, short_names(audit.logs))
    return table(logs.rows, logs.headings, as_cards=True)


def answer_of_log(log: AuditedLog) -> Section:
    """Return the throughput of a log, its operations, and what it rests on."""
    section = paragraph(strong(answer_text(log)))
    if log.answer and log.answer.model:
        speed, *formula = model_texts(log.answer.model)
        section += paragraph(speed) + note(*formula)
    return section + paragraph(lacking_text(log)) + note(main_facts_text(log))


def printed_quantities(log: AuditedLog) -> Section:
    """Return a table with a row for each quantity that the lines of a log print."""
    rows = [printed_row(printed) for printed in log.printed]
    headings = [_("Printed by the log"), _("As"), _("First"), _("Median"), _("Last")]
    return table(rows, headings, as_cards=True)


def step_times(log: AuditedLog) -> Section:
    """Return a table of the seconds of a step, by period and by what they come from."""
    rows = []
    for time in log.step_times:
        seconds = [number(time.mean_seconds, DIGITS), number(time.median_seconds, DIGITS)]
        rows.append([period_text(time), *seconds, str(time.steps)])
    headings = [_("Steps"), _("Mean (s/step)"), _("Median (s/step)"), _("Number of steps")]
    if log.step == "epoch":
        headings = [_("Epochs"), _("Mean (s)"), _("Median (s)"), _("Number of epochs")]
    return table(rows, headings, as_cards=True)
