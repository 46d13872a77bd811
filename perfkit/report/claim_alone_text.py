"""A claim without a log as text for a terminal. English only, as terminals are."""

from perfkit.audit.claim_alone import ClaimAlone, ClaimUtilization, Reading
from perfkit.audit.claim_premises import ClaimPeak, Premises
from perfkit.core.format import number, percent
from perfkit.report.text.terminal import tabulated, wrapped

SCOPES = {"all": "as that of all", "device": "as that of one"}


def claim_alone_text(claim: ClaimAlone) -> str:
    """Return a claim's verdict and what it means, in lines of 80 columns."""
    lines = [wrapped(claim.answer.text()), "", wrapped(_premises_text(claim))]
    lines += _table(claim)
    for reading in claim.readings:
        lines += _mistake_lines(reading, claim)
    notes = _notes(claim)
    if notes:
        lines += ["", *map(wrapped, notes)]
    return "\n".join(lines)


def _premises_text(claim: ClaimAlone) -> str:
    """Return the claim and what was stated, on one line."""
    premises = claim.premises
    counts = {
        "devices": premises.devices,
        "parameters": premises.parameters,
        "layers": premises.layers,
        "hidden size": premises.hidden_size,
        "tokens a sequence": premises.sequence_length,
        "samples an update": premises.global_batch_size,
    }
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    if premises.hidden_size:
        width = f"{premises.hidden_size:,} hidden size"
        parts[parts.index(width)] = f"width {premises.hidden_size:,}"
    if claim.peak:
        parts.append(claim.peak.gpu)
    return f"{claim.text}: {', '.join(parts)}" if parts else claim.text


# The table.


def _table(claim: ClaimAlone) -> list[str]:
    rows = _rows(claim)
    if not rows:
        return []
    if len(claim.readings) == 1:
        # A heading would only say what the claim says.
        _heading, *lines = tabulated(rows, ["", ""])
        return ["", *lines]
    return ["", *tabulated(rows, ["", *(SCOPES[reading.of] for reading in claim.readings)])]


def _rows(claim: ClaimAlone) -> list[list[str]]:
    """Return a row for each rate and each share of a peak, with a column for each reading."""
    rows = []
    for name, field in (
        ("tokens/s", "tokens_per_second"),
        ("tokens/s/GPU", "tokens_per_device"),
        ("samples/s", "samples_per_second"),
        ("steps/s", "steps_per_second"),
        ("s/step", "seconds_per_step"),
    ):
        values = [getattr(reading, field) for reading in claim.readings]
        if any(values):
            rows.append([name, *map(number, values)])
    for index, first in enumerate(claim.readings[0].utilizations):
        of_readings = [reading.utilizations[index] for reading in claim.readings]
        rows += _utilization_rows(first.formula, of_readings, claim)
    return rows


def _utilization_rows(
    formula: str, utilizations: list[ClaimUtilization], claim: ClaimAlone
) -> list[list[str]]:
    """Return the rows of one formula: tokens/s if the claim states FLOPs, TFLOP/s, shares."""
    by = f", {formula}" if formula else ""
    rows = []
    states_flops = claim.quantity in ("TFLOP/s", "MFU")
    tokens = [utilization.tokens_per_device for utilization in utilizations]
    if states_flops and any(tokens):
        rows.append([f"tokens/s/GPU{by}", *map(number, tokens)])
    if states_flops and rows and formula != claim.readings[0].utilizations[0].formula:
        # TFLOP/s and MFU are those of the claim, by any formula.
        return rows
    by_claim = "" if states_flops else by
    tflops = [utilization.tflops_per_device for utilization in utilizations]
    if any(tflops):
        rows.append([f"TFLOP/s/GPU{by_claim}", *map(number, tflops)])
    dense = [utilization.mfu for utilization in utilizations]
    if any(dense):
        rows.append([f"MFU{by_claim}", *map(percent, dense)])
    sparse = [utilization.sparse_mfu for utilization in utilizations]
    if any(sparse):
        rows.append([f"  of the peak with sparsity{by_claim}", *map(percent, sparse)])
    return rows


# Mistakes and notes.


def _mistake_lines(reading: Reading, claim: ClaimAlone) -> list[str]:
    """Return the mistakes that would explain a reading, if no other reading is possible."""
    if not reading.mistakes or claim.verdict == "possible":
        return []
    reading_of = f" {SCOPES[reading.of]}" if len(claim.readings) > 1 else ""
    lines = ["", f"Mistakes that would explain it{reading_of}:"]
    for mistake in reading.mistakes:
        lines.append(wrapped(f"- {mistake.text()}", "  "))
    return lines


def _notes(claim: ClaimAlone) -> list[str]:
    """Return the peak with its source, and what the FLOPs count."""
    notes = []
    of_rate = claim.quantity not in ("MFU", "s/step", "steps/s")
    if of_rate and not claim.of and not claim.premises.devices:
        notes.append("Read as the number of one device; for that of all, add -p devices COUNT.")
    if claim.peak:
        notes.append(_peak_text(claim.peak))
    if claim.premises.parameters:
        notes.append(_flops_text(claim.premises))
    return notes


def _peak_text(peak: ClaimPeak) -> str:
    text = f"Dense peak of the {peak.gpu} in {peak.precision}: {number(peak.dense_tflops)}"
    if peak.sparse_tflops:
        text += f" TFLOP/s, with sparsity {number(peak.sparse_tflops)}"
    return f"{text} TFLOP/s ({peak.source})."


def _flops_text(premises: Premises) -> str:
    """Return what the formulas count, and what would add attention."""
    text = "FLOPs of a token: 6 N for N parameters that are all trained and used"
    if premises.layers and premises.hidden_size and premises.sequence_length:
        return (
            f"{text}; attention 12 L d T in full, 6 L d T causally (L layers, width d, T "
            "tokens of a sequence)."
        )
    missing = []
    for name, count in (
        ("layers", premises.layers),
        ("hidden_size", premises.hidden_size),
        ("sequence_length", premises.sequence_length),
    ):
        if not count:
            missing.append(name)
    return f"{text}. To count attention, add {', '.join(f'-p {name}' for name in missing)}."
