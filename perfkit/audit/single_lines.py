"""A claim that no statistic of a log explains, but that single lines print."""

from collections.abc import Iterator

import numpy as np

from perfkit.audit.audit import Claim, LocatedFinding
from perfkit.audit.claims import EXACT, LogFigures
from perfkit.audit.quantity import claimed_quantity
from perfkit.audit.recompute import Figures, half_of
from perfkit.audit.samples import unit_of
from perfkit.audit.statements import OneLine

RATES = ("samples/s", "tokens/s")
"""Quantities that a claim without a unit may be."""


def with_single_lines(claim: Claim, audited: LogFigures) -> Claim:
    """Return a claim that is not reproduced with the lines that print its number, if any."""
    figures = audited.figures
    if claim.state != "not reproduced" or not figures.rows:
        return claim
    quantity = claimed_quantity(claim.text)
    half = quantity.half if quantity else half_of(claim.text)
    has_number = np.zeros(len(figures.rows["line"]), bool)
    for values in _printed(figures, claim):
        has_number |= np.abs(values - claim.value) <= half * EXACT
    lines = figures.rows["line"][has_number]
    if not len(lines):
        return claim
    finding = LocatedFinding(finding=OneLine(count=len(lines)), line=int(lines[0]))
    return claim.model_copy(
        update={"state": "one line", "findings": [*claim.findings, finding]}
    )


def _printed(figures: Figures, claim: Claim) -> Iterator[np.ndarray]:
    """Yield what the lines print in the claim's quantity, or every rate if it has none."""
    log = figures.log
    kinds = (claim.quantity,) if claim.quantity else RATES
    is_in_unit = not claim.quantity or unit_of(log.facts) in kinds
    if is_in_unit and claim.of in (None, "", log.semantics.rate_of):
        yield figures.rows["rate"]
    for printed in log.printed:
        has_scope = not claim.of or not printed.of or claim.of == printed.of
        if printed.quantity in kinds and has_scope:
            yield figures.rows[printed.column] * printed.scale
