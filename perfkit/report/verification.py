"""A verification as a section, also of a measurement's page."""

from perfkit.analysis.verification.matching import comparisons_of
from perfkit.analysis.verification.stored import (
    ComparedQuantity,
    FrameworkSetup,
    Precision,
    Quantity,
    SetupComparison,
    Verification,
)
from perfkit.measuring.format import minute, number
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statements import N_
from perfkit.report.elements import (
    foreign,
    note,
    paragraph,
    severity_mark,
    strong,
    table,
    title,
)
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import stored_value
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


def verification_section(verification: Verification) -> Section:
    """Return the verdict on each setup with a table of its quantities."""
    size = f"{verification.sequence_length} tokens"
    if verification.image_size:
        size = f"{verification.image_size} pixels"
    model = model_named(verification.model, verification.model_size).name
    batch = f"batch {verification.batch_size}"
    section = title(f"{model}, {size}, {batch}, {verification.optimizer}")
    section += paragraph(f"Base: {verification.base}")
    for comparison in verification.against:
        mark = severity_mark(None if comparison.agreed else "error")
        section += paragraph(mark, _verdict(comparison.side, comparison))
        section += _quantity_table(comparison, verification.steps)
    return section


def _verdict(partner: FrameworkSetup, comparison: SetupComparison) -> str:
    """Return whether `partner`, one of the two setups, does the same work as the other."""
    words = _("%(partner)s: NOT the same work.")
    if comparison.agreed:
        words = _("%(partner)s: the same work.")
    return words % {"partner": str(partner)}


# The page of a measurement.


def work_equivalence(measurement: Measurement) -> Section:
    """Results of work verification against other frameworks; empty without any."""
    unreadable: list[str] = []
    outputs = measurement.folder.parent
    comparisons = comparisons_of(outputs, measurement.result, unreadable)
    section = Section()
    for verification, partner, comparison in comparisons:
        verdict = strong(_verdict(partner, comparison))
        section += paragraph(verdict, _how_compared(verification))
        section += _quantity_table(comparison, verification.steps)
    if unreadable:
        section += paragraph(_("Not read:"), foreign("; ".join(unreadable)))
    return section + _how_verified() if comparisons else section


def _how_compared(verification: Verification) -> str:
    return _("Compared with %(base)s on batches of %(batch)s, %(created)s.") % {
        "base": str(verification.base),
        "batch": verification.batch_size,
        "created": minute(verification.created),
    }


def _quantity_table(comparison: SetupComparison, steps: int) -> Section:
    rows = []
    for quantity in comparison.checks:
        precision = PRECISIONS[quantity.precision]
        name = ", ".join(filter(None, [quantity_name(quantity, steps), precision]))
        agrees = stored_value(quantity.agreed)
        where = foreign(quantity.where) if not quantity.agreed else ""
        rows.append([name, *numbers_of(quantity), agrees, where])
    headings = [_("Check"), _("Base"), _("Other"), _("Difference"), _("Allowed")]
    return table(rows, [*headings, _("Agrees"), _("Largest difference")], as_cards=True)


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
