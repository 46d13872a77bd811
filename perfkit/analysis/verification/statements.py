"""The verdicts of a verification."""

from typing import ClassVar

from perfkit.analysis.verification.stored import FrameworkSetup, SetupComparison
from perfkit.measuring.statements import N_, Statement


class WorkVerdict(Statement):
    """Whether a framework does the same work as the one that it was compared with."""

    classes: ClassVar = {}
    partner: str
    """the framework's setup"""


class WorkAgrees(WorkVerdict):
    code = "same"
    sentence = N_("%(partner)s: the same work.")


class WorkDiffers(WorkVerdict):
    code = "different"
    sentence = N_("%(partner)s: NOT the same work.")


def work_verdict(partner: FrameworkSetup, comparison: SetupComparison) -> WorkVerdict:
    """Return the verdict of a comparison on `partner`, one of its two setups."""
    if comparison.agreed:
        return WorkAgrees(partner=str(partner))
    return WorkDiffers(partner=str(partner))
