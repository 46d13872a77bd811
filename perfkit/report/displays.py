"""The text by which results of Python calls display themselves in a notebook: what the command
that makes such a result prints."""

from collections.abc import Callable
from typing import Any

from perfkit.analysis.comparison.history import History
from perfkit.analysis.comparison.stored import Comparison, InterleavedComparison
from perfkit.analysis.fleet.stored import Fleet
from perfkit.analysis.verification.stored import Verification
from perfkit.report.comparison_text import comparison_text, interleaved_text
from perfkit.report.fleet_text import fleet_text
from perfkit.report.history_text import history_text
from perfkit.report.verification import verification_text

TEXTS: dict[type, Callable[[Any], str]] = {
    Comparison: comparison_text,
    InterleavedComparison: interleaved_text,
    History: history_text,
    Verification: verification_text,
    Fleet: fleet_text,
}
"""Type of a result -> function that returns its text; `perfkit.DISPLAYED` names the same."""


def show(result: Any, printer: Any, _is_cycle: bool) -> None:
    """Print a result as IPython's formatters of plain text do."""
    printer.text(TEXTS[type(result)](result))
