"""How results of Python calls display themselves in a notebook: as the sections of the commands
that make such results."""

from collections.abc import Callable
from typing import Any

from perfkit.analysis.comparison.history import History
from perfkit.analysis.comparison.stored import SelectedComparison
from perfkit.analysis.fleet.stored import Fleet
from perfkit.analysis.verification.stored import Verification
from perfkit.measuring.paths import outputs_path
from perfkit.report.comparison import selected_comparison
from perfkit.report.fleet import fleet_section
from perfkit.report.history import history_section
from perfkit.report.links import Site
from perfkit.report.section import Section
from perfkit.report.verification import verification_section

SITE = Site(outputs_path(), frozenset())
"""A site without pages to link to: a result does not tell whose they are."""
SECTIONS: dict[type, Callable[[Any], Section]] = {
    SelectedComparison: selected_comparison,
    History: lambda history: history_section(history, SITE),
    Verification: verification_section,
    Fleet: lambda fleet: fleet_section(fleet, SITE),
}
"""Type of a result -> function that returns its section; `perfkit.DISPLAYED` names the same."""


def show(result: Any) -> None:
    """Display a result as IPython's formatter of `_ipython_display_` does."""
    SECTIONS[type(result)](result)._ipython_display_()
