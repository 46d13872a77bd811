"""Sections of notebooks and pages. This package reads results; it computes no numbers.

section.py      text, tables and figures as outputs of a notebook cell
style.py        style of the charts
pages.py        HTML pages from notebooks
measurement.py  sections of a measurement's page
step_charts.py  charts of its raw steps
words.py        its number and warnings in words
comparison.py   sections of the pages of interleaved comparisons and of the history
comparison_text.py  comparisons as text for a terminal
history_text.py  the history as text for a terminal
audit.py        sections of an audit's page
audit_text.py   texts of audits: statistics, steps, claims and findings
audit_terminal.py  an audit as text for a terminal
summary.py      sections of the summary
published.py    sections of the page of published tables
site.py         writes one page, or all pages of an outputs folder with their index
"""

from importlib import import_module
from typing import Any

from perfkit.report.text.language import set_language

MODULES = {
    "plan": "measurement",
    "headline": "measurement",
    "step_times": "measurement",
    "warnings": "measurement",
    "repeats": "measurement",
    "limits": "measurement",
    "telemetry": "measurement",
    "parameters": "measurement",
    "work_equivalence": "measurement",
    "effective_settings": "measurement",
    "environment": "measurement",
    "method": "measurement",
    "raw_files": "measurement",
    "comparison_headline": "comparison",
    "comparison_variants": "comparison",
    "comparison_pairs": "comparison",
    "history_overview": "comparison",
    "history_series": "comparison",
    "audit_headline": "audit",
    "audit_waterfall": "audit",
    "audit_claims": "audit",
    "audit_findings": "audit",
    "audit_logs": "audit",
    "Summary": "summary",
    "fastest": "summary",
    "ratios": "summary",
    "throughput_by_batch": "summary",
    "scaling": "summary",
    "beside_published": "summary",
    "left_out": "summary",
    "published_tables": "published",
    "publish": "site",
    "publish_summary": "site",
    "publish_published": "site",
    "publish_history": "site",
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
