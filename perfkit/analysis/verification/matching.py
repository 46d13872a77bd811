"""Which stored verifications hold for a measurement."""

from pathlib import Path
from typing import NamedTuple

from perfkit.analysis.verification.stored import (
    FrameworkSetup,
    SetupComparison,
    Verification,
    read_verifications,
)
from perfkit.measuring.results.schema import Result


class PairVerification(NamedTuple):
    """A verification that holds for two measurements, and their setups."""

    verification: Verification
    a: FrameworkSetup
    b: FrameworkSetup

    @property
    def agreed(self) -> bool:
        return self.verification.agree(self.a, self.b)


class PartnerComparison(NamedTuple):
    """A comparison of a measurement's framework with another one, its partner."""

    verification: Verification
    partner: FrameworkSetup
    comparison: SetupComparison


def verification_of(outputs: Path, a: Result, b: Result) -> PairVerification | None:
    """Return the newest verification that holds for both measurements; None if there is none or
    both have the same setup."""
    for verification in read_verifications(outputs, []):
        setup_a, setup_b = verification.setup_of(a), verification.setup_of(b)
        if setup_a and setup_b and setup_a != setup_b:
            return PairVerification(verification, setup_a, setup_b)
    return None


def comparisons_of(
    outputs: Path, result: Result, left_out: list[str]
) -> list[PartnerComparison]:
    """Return the newest comparison of a measurement's framework with each other framework. The
    reasons why verifications can't be read are added to `left_out`."""
    newest: dict[str, PartnerComparison] = {}
    for verification in read_verifications(outputs, left_out):
        setup = verification.setup_of(result)
        for comparison in verification.against:
            if setup == verification.base:
                partner = comparison.side
            elif setup == comparison.side:
                partner = verification.base
            else:
                continue
            compared = PartnerComparison(verification, partner, comparison)
            newest.setdefault(str(partner), compared)
    return list(newest.values())
