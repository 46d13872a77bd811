"""Verifications as text for a terminal, and as a section of a measurement's page."""

from perfkit.analysis.verification.command import verify_command
from perfkit.analysis.verification.matching import comparisons_of
from perfkit.analysis.verification.statements import work_verdict
from perfkit.analysis.verification.stored import (
    ComparedQuantity,
    Precision,
    Quantity,
    SetupComparison,
    Verification,
)
from perfkit.measuring.format import minute, number
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statements import N_
from perfkit.report.elements import Text, code, foreign, note, paragraph, strong, table
from perfkit.report.section import Section, absence, folded
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import stored_value
from perfkit.report.text.statements import sentence
from perfkit.report.text.terminal import tabulated, wrapped
from perfkit.training.models import model_named

PRECISIONS: dict[Precision | None, str] = {None: "", "fp32": "float32", "fp64": "float64"}
QUANTITIES: dict[Quantity, str] = {
    "parameters": N_("Parameters"),
    "multiply_adds": N_("Multiply-adds, forward pass"),
    "training_flops": N_("FLOPs, forward and backward pass"),
    "first_loss": N_("Loss, step 1"),
    "losses": N_("Loss, worst step"),
    "gradients": N_("Gradients, step 1"),
    "first_update": N_("Weight update, step 1"),
    "last_update": N_("Weight update, step %(steps)d"),
}


# Texts of a quantity.


def quantity_name(quantity: ComparedQuantity, steps: int) -> str:
    """Return a quantity's name in the current language, after `steps` steps of training."""
    return _(QUANTITIES[quantity.name]) % {"steps": steps}


def value_text(quantity: ComparedQuantity, value: float | None) -> str:
    """Return the value of one of the two setups."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if quantity.name in ("first_loss", "losses"):
        return f"{value:.10f}"
    return number(value, 7)


def difference_text(quantity: ComparedQuantity) -> str:
    if quantity.difference is None:
        return "–"
    if quantity.difference == 0:
        return "0"
    return f"{quantity.difference:.1e}"


def numbers_of(quantity: ComparedQuantity) -> list[str]:
    """Return the base's and the other value, their difference, and the tolerance."""
    return [
        value_text(quantity, quantity.base),
        value_text(quantity, quantity.other),
        difference_text(quantity),
        f"{quantity.allowed:g}",
    ]


# The terminal.


def verification_text(verification: Verification) -> str:
    """Return a verification as text in lines of at most 80 columns."""
    size = f"{verification.sequence_length} tokens"
    if verification.image_size:
        size = f"{verification.image_size} pixels"
    model = model_named(verification.model, verification.model_size).name
    batch = f"batch {verification.batch_size}"
    lines = [
        f"{model}, {size}, {batch}, {verification.optimizer}",
        f"Base: {verification.base}",
    ]
    for comparison in verification.against:
        lines += ["", str(comparison.side)]
        lines += _comparison_lines(comparison, verification.steps)
    return "\n".join(lines)


def _comparison_lines(comparison: SetupComparison, steps: int) -> list[str]:
    """Return a table of the quantities, those that disagree, and the verdict."""
    rows = []
    disagreements = []
    precision: Precision | None = None
    for quantity in comparison.checks:
        name = quantity_name(quantity, steps)
        in_precision = PRECISIONS[quantity.precision]
        if quantity.precision != precision:
            rows.append([f"in {in_precision}", "", "", "", ""])
            precision = quantity.precision
        indent = "  " if in_precision else ""
        rows.append([indent + name, *numbers_of(quantity)])
        if not quantity.agreed:
            where = f"{name}, {in_precision}" if in_precision else name
            disagreements.append(wrapped(f"! {where}: {quantity.where}"))
    headings = ("", "base", "other", "difference", "tolerance")
    verdict = work_verdict(comparison.side, comparison).text()
    return [*tabulated(rows, headings), *disagreements, wrapped(verdict)]


# The page of a measurement.


def work_equivalence(measurement: Measurement) -> Section:
    """Results of work verification against other frameworks; a script can't be verified."""
    config = measurement.result.config
    if not config.work.facts:
        return paragraph(_("Only the suite's own models can be verified, not a script."))
    unreadable: list[str] = []
    outputs = measurement.folder.parent
    comparisons = comparisons_of(outputs, measurement.result, unreadable)
    section = Section()
    for verification, partner, comparison in comparisons:
        verdict = strong(sentence(work_verdict(partner, comparison)))
        section += paragraph(verdict, _how_compared(verification))
        section += folded(_("All checks"), _quantity_table(comparison, verification.steps))
    if not comparisons:
        not_verified = _not_verified(verify_command(config))
        has_number = bool(measurement.result.complete_repeats)
        section += not_verified if has_number else absence(not_verified)
    if unreadable:
        section += paragraph(_("Not read:"), foreign("; ".join(unreadable)))
    if comparisons:
        section += _how_verified()
    return section


def _how_compared(verification: Verification) -> str:
    return _("Compared with %(base)s on batches of %(batch)s, %(created)s.") % {
        "base": str(verification.base),
        "batch": verification.batch_size,
        "created": minute(verification.created),
    }


def _quantity_table(comparison: SetupComparison, steps: int) -> Section:
    rows = []
    for quantity in comparison.checks:
        name, precision = quantity_name(quantity, steps), PRECISIONS[quantity.precision]
        agrees = stored_value(quantity.agreed)
        where = foreign(quantity.where) if quantity.where else None
        rows.append([name, precision, *numbers_of(quantity), agrees, where])
    headings = [
        *(_("Check"), _("Precision"), _("Base"), _("Other"), _("Difference"), _("Allowed")),
        *(_("Agrees"), _("Largest difference")),
    ]
    return table(rows, headings)


def _not_verified(command: str) -> Section:
    texts: list[Text] = [_("Work equivalence with another framework was not verified.")]
    if command:
        texts += [_("To verify it:"), code(command)]
    return paragraph(*texts)


def _how_verified() -> Section:
    return note(
        _(
            "Each framework trained in its own process on the CPU, from the same weights, on "
            "the same synthetic batch, without dropout. Losses and the norms of gradients and "
            "updates are compared relatively: in float64 the worst tensor, in float32 all "
            "tensors together, since rounding alone moves float32 gradients of deep networks "
            "by percents. FLOPs include the backward pass (Chowdhery et al., 2022). Lower "
            "precisions, sharding and recomputation are not covered."
        )
    )
