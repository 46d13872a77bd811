"""Sections of notebooks and pages. This package reads results; it computes no numbers.

section.py      text, tables and figures as outputs of a notebook cell
elements.py     paragraphs, lists, links and tables of a section
style.py        style of the charts
rendering.py    templates
sanitizing.py   HTML and Markdown of a user's cells
contents.py     list of a page's sections
cells.py        HTML of a notebook's cells
links.py        links between the pages of an outputs folder
pages.py        HTML pages from notebooks
measurement.py  page of a measurement
tiles.py        its beginning: throughput, limit and trust
steps.py        its steps, warnings, repeats, telemetry and raw files
step_charts.py  charts of its raw steps
peaks.py        what limits its throughput
told.py         of a script: what ran, and what it told the timer
setup.py        its parameters, settings, environment and method
words.py        its number and warnings in words
comparison.py   sections of the pages of interleaved comparisons
history.py      sections of the history's page
comparison_text.py  comparisons as text for a terminal
history_text.py  the history as text for a terminal
fleet.py        sections of the fleet's page
fleet_text.py   a fleet as text for a terminal
audit.py        sections of an audit's page
answer_sections.py  the answers of an audit on its page
audit_answer.py texts of the answer of an audit: throughput, steps, operations
audit_text.py   texts of audits: statistics, steps and claims
audited_logs.py  a table of several audited logs
audit_terminal.py  an audit as text for a terminal
formats_text.py    the log formats that perfkit audit --formats lists
diagnosis.py    section of a diagnosis, and the command for one
verification.py a verification as text, and as a section of a measurement's page
summary.py      data of the summary, and its sections that are tables
rankings.py     its section on which framework is fastest
curves.py       its sections on batch sizes and scaling
published.py    sections of the page of published tables
published_cells.py  cells of published tables in words
published_charts.py charts of published tables
displays.py     results of Python calls as text in a notebook
exploring.py    tables for the notebook explore.ipynb
index.py        index of an outputs folder
index_rows.py   its rows, a measurement each
site.py         writes one page, or all pages of an outputs folder with their index
"""

from importlib import import_module
from typing import Any

from perfkit.report.text.language import set_language

MODULES = {
    "plan": "tiles",
    "headline": "tiles",
    "step_times": "steps",
    "warnings": "steps",
    "repeats": "steps",
    "limits": "peaks",
    "telemetry": "steps",
    "parameters": "setup",
    "work_equivalence": "verification",
    "script": "told",
    "effective_settings": "setup",
    "environment": "setup",
    "method": "setup",
    "raw_files": "steps",
    "comparison_headline": "comparison",
    "comparison_variants": "comparison",
    "comparison_pairs": "comparison",
    "history_overview": "history",
    "history_series": "history",
    "fleet_overview": "fleet",
    "fleet_nodes": "fleet",
    "audit_headline": "audit",
    "audit_waterfall": "audit",
    "audit_claims": "audit",
    "audit_findings": "audit",
    "audit_logs": "audit",
    "Summary": "summary",
    "fastest": "rankings",
    "ratios": "summary",
    "throughput_by_batch": "curves",
    "scaling": "curves",
    "beside_published": "summary",
    "left_out": "summary",
    "published_tables": "published",
    "publish": "site",
    "publish_summary": "site",
    "publish_published": "site",
    "publish_history": "site",
    "publish_fleet": "site",
    "publish_comparison": "site",
    "publish_audit": "site",
}
"""Names that notebooks use -> their modules, imported on first use: a measurement's page needs
no published tables."""

__all__ = ["set_language", *MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'perfkit.report' has no attribute {name!r}")
    return getattr(import_module(f"perfkit.report.{MODULES[name]}"), name)
