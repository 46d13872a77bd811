"""Claimed numbers beside those of their logs, on a page and in a terminal."""

from collections.abc import Iterator

from markupsafe import Markup

from perfkit.analysis.published.cells import FRAMEWORK_NAMES
from perfkit.audit.audit import Audit, AuditedLog
from perfkit.audit.claim import FAILED, GIVEN, Claim
from perfkit.report.audit_text import (
    answer_steps,
    claim_lines,
    difference_text,
    other_work,
    reference_text,
    state_text,
)
from perfkit.report.blocks import Inline
from perfkit.report.elements import alarm, bullets, joined, link, paragraph, strong, table
from perfkit.report.section import Section, folded
from perfkit.report.text.language import enumerated, ngettext
from perfkit.report.text.language import gettext as _


def claimed(audit: Audit) -> Section:
    """Each claimed number with its state and the log's, then claims without a log."""
    rows: dict[str, list[list[Inline]]] = {}
    for claim, row in _rows(audit):
        rows.setdefault(_part(claim), []).append(row)
    without_log: dict[str, list[str]] = {}
    for claim in audit.claims:
        if claim.log is None:
            without_log.setdefault(claim.table or "", []).append(_without_log(claim))
    headings = [_("Claimed"), _("Explanation"), _("The log's answer"), _("Place")]
    section = Section()
    for name, rows_of_part in rows.items():
        section += table(rows_of_part, headings, name, as_cards=True)
    for name, texts in sorted(without_log.items()):
        words = ngettext(
            "%(table)s: %(count)s number without a log",
            "%(table)s: %(count)s numbers without a log",
            len(texts),
        )
        facts = {"table": name or _("The claim"), "count": len(texts)}
        section += folded(words % facts, bullets(texts))
    return section


def claimed_in_short(audit: Audit) -> Section:
    """The numbers with a log, one below another, for a terminal."""
    section = Section()
    for claim, (number, explanation, answer, place) in _rows(audit):
        details = [explanation, answer and f"the log's answer: {answer}"]
        if claim.table:
            details.append(place)
        section += paragraph(strong(number)) + bullets(filter(None, details))
    return section


def _rows(audit: Audit) -> Iterator[tuple[Claim, list[Inline]]]:
    """Yield the claims with a log, each with its cells."""
    places = {log.name: (log, index) for index, log in enumerate(audit.logs, 1)}
    for claim in audit.claims:
        if claim.log:
            yield claim, _row(claim, *places[claim.log])


def _part(claim: Claim) -> str:
    """Return the name of the table that a claim belongs to; empty for a claim of its own."""
    return " · ".join(filter(None, (claim.table, claim.gpu, claim.precision)))


def _row(claim: Claim, log: AuditedLog, log_number: int) -> list[Inline]:
    state = state_text(claim)
    marked = alarm(state) if claim.state in FAILED else state
    explanation = joined([*claim_lines(claim), other_work(claim, log)], "; ")
    answer = [
        reference_text(claim),
        difference_text(claim.reference_difference),
        answer_steps(log),
    ]
    answered = enumerated(filter(None, answer)) if claim.reference else ""
    return [joined([claim.text, marked]), explanation, answered, _place(claim, log_number)]


def _place(claim: Claim, log_number: int) -> Markup:
    """Return where a number was published, with a link to its log."""
    place = "" if claim.place == GIVEN else claim.place
    if claim.framework:
        place = enumerated(_cell(claim))
    log = (claim.log or "").split("/")[-1]
    cell = Markup('<div style="min-width: 8em; overflow-wrap: anywhere">%s</div>')
    return cell % joined([place, link(f"#log{log_number}", log)], "<br>")


def _cell(claim: Claim) -> list[str]:
    """Return the place of a number in its table: framework, topology and batch size."""
    assert claim.framework
    batch = _("batch %(size)s") % {"size": claim.batch_size}
    return [FRAMEWORK_NAMES[claim.framework], claim.topology or "–", batch]


def _without_log(claim: Claim) -> str:
    """Return a number without a log with its place in the table."""
    place = claim.place
    if claim.framework:
        place = enumerated([*_cell(claim), claim.precision or "–", claim.gpu or "–"])
    return f"{claim.text} ({place})"
