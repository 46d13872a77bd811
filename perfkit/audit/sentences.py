"""What an audit found, in words."""

from collections.abc import Mapping
from typing import Any

from perfkit.audit.recorded import recorded
from perfkit.audit.stored import Claim, Explanation, Figure, Finding
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _

DIGITS = 6
"""Significant digits of a rate; logs print about as many."""


def state_words(state: str) -> str:
    return {
        "reproduced": _("reproduced"),
        "near": _("near"),
        "not reproduced": _("not reproduced"),
        "no number": _("no number in the log"),
        "no log": _("no log"),
    }[state]


def part_words(claim: Claim) -> str:
    """The part of a published table that a claim is in, or its place."""
    return " · ".join(filter(None, (claim.table, claim.gpu, claim.precision))) or claim.place


def way_words(figure: Figure) -> str:
    """The statistic of a figure."""
    ways = {
        "told": _("the log's own “%(name)s”"),
        "samples/time": _("samples / time"),
        "clock": _("samples / time by the lines' timestamps"),
        "mean of rates": _("mean of printed rates"),
        "harmonic mean": _("harmonic mean of printed rates"),
        "median": _("median of printed rates"),
        "last print": _("last printed rate"),
        "first print": _("first printed rate"),
        "maximum": _("highest printed rate"),
        "mean after skipping": _("mean of printed rates without the first %(skipped)d"),
    }
    return ways[figure.statistic] % {"name": figure.name, "skipped": figure.skipped}


def range_words(figure: Figure) -> str:
    """The steps of a figure, or its line in the log."""
    if figure.statistic == "told":
        return _("line %(line)d") % {"line": figure.line}
    if figure.statistic in ("last print", "first print", "maximum"):
        return _("one line")
    prints = _("%(prints)d lines") % {"prints": figure.prints}
    if figure.first is None:
        return prints
    told = {"first": figure.first, "last": figure.last, "epochs": figure.epochs}
    steps = _("steps %(first)d–%(last)d") % told
    if figure.epochs > 1:
        steps = _("steps %(first)d–%(last)d of %(epochs)d epochs") % told
    return f"{steps}, {prints}"


def value_of(figure: Figure) -> float:
    """Of all devices or, where their number is unknown, of one."""
    return figure.throughput or figure.per_device or 0.0


def explanation_words(one: Explanation) -> str:
    """A figure that is the claimed number, and of how many devices."""
    words = f"{way_words(one.figure)} ({range_words(one.figure)})"
    if one.devices is not None:
        told = {"figure": words, "devices": one.devices}
        words = _("%(figure)s of one device × %(devices)d") % told
    return words


def difference_words(share: float | None) -> str:
    return "" if share is None else f"{'+' if share > 0 else ''}{percent(share, 3)}"


def chance_words(claim: Claim) -> str:
    """How many figures were tried, and how many equally simple ones match by chance."""
    told = {"tried": claim.tried, "chance": number(claim.chance, 2)}
    words = _(
        "%(tried)d statistics tried; %(chance)s equally simple ones are expected to match by "
        "chance"
    )
    return words % told


def finding_words(finding: Finding, short: Mapping[str, str] | None = None) -> str:
    """A finding as a sentence, with the `short` names of logs instead of their paths."""
    figures = {name: _value(name, value) for name, value in finding.figures.items()}
    sentence = sentences()[finding.name] % figures
    for name, other in (short or {}).items():
        sentence = sentence.replace(name, other)
    return sentence


def _value(name: str, value: Any) -> str:
    if name == "words":
        return recorded(value)
    if isinstance(value, list):
        return ", ".join(_value(name, one) for one in value)
    if isinstance(value, dict):
        return "; ".join(
            f"{place}: {way_words(figure)} ({range_words(figure)})"
            for place, told in value.items()
            for figure in [Figure.model_validate(told)]
        )
    if isinstance(value, float):
        words = {"share": percent, "difference": difference_words}
        return words[name](value) if name in words else number(value, DIGITS)
    return "–" if value is None else str(value)


def sentences() -> dict[str, str]:
    """The sentence of each finding, by its name, with places for its figures."""
    return {
        "note": "%(words)s",
        "no_prints": _("No printed line names a step; only the log's own figures are there."),
        "fewer_steps": _(
            "Printed lines cover %(steps)s of the steps %(first)s to %(last)s of an epoch."
        ),
        "restarts": _("The steps restart %(count)s times: several trainings in one file."),
        "missing_prints": _(
            "%(count)s printed lines are more than %(spacing)s steps after the previous line."
        ),
        "clock_differs": _(
            "Over steps %(first)s to %(last)s, samples / time is %(right)s by the printed "
            "times, and %(clock)s by the timestamps of the lines, %(difference)s."
        ),
        "slow_print": _(
            "One printed line, of %(steps)s of the %(of)s steps, takes %(share)s of their time."
        ),
        "mean_of_rates": _(
            "Over steps %(first)s to %(last)s, the mean of the printed rates is %(mean)s, "
            "%(share)s higher than samples / time, %(right)s."
        ),
        "input_wait": _("Data wait takes %(share)s of the steps' time."),
        "odd_rates": _("%(count)s printed rates are zero, negative or infinite; ignored."),
        "rate_not_time": _(
            "The printed rate times the printed step time is %(samples)s samples; a step has "
            "%(batch)s."
        ),
        "negative_accuracy": _(
            "%(count)s printed accuracies are negative; the lowest is %(lowest)s."
        ),
        "loss_not_finite": _("From this line on, no printed loss is finite."),
        "first_loss": _(
            "The first printed loss is %(loss)s; an untrained network that guesses has "
            "%(low)s to %(high)s."
        ),
        "last_loss": _(
            "The mean of the last losses is %(loss)s; above %(high)s is worse than guessing."
        ),
        "loss_standing": _("All %(count)s printed losses are %(loss)s."),
        "loss_not_falling": _(
            "The loss did not fall: the mean of the first lines is %(first)s, of the last "
            "%(last)s."
        ),
        "same_file": _("These files have the same content: %(files)s."),
        "same_losses": _("These files start with the same losses (%(losses)s): %(files)s."),
        "super_linear": _(
            "%(file)s: each of %(ranks)s devices is %(share)s faster than each of %(of)s in "
            "%(base)s (samples / time)."
        ),
        "mixed_statistics": _(
            "%(table)s, %(framework)s, %(precision)s: no single statistic explains these "
            "numbers, from which speed-ups are derived. %(figures)s."
        ),
        "one_for_two": _("%(file)s explains several published numbers: %(places)s."),
        "other_work": _("The log has %(key)s %(log)s; the published number has %(claimed)s."),
        "ambiguous": _("The log matches several published numbers and does not decide which."),
        "other_count": _(
            "The number is the figure of one device times %(devices)s; the log has another "
            "number of devices."
        ),
        "other_statistic": _(
            "Samples / time over steps %(first)s to %(last)s is %(right)s, %(difference)s from "
            "the claim."
        ),
        "mean_of_running": _(
            "The printed rates are running means; their mean counts early steps repeatedly."
        ),
        "warm_up_inside": _(
            "The first 20 steps are included; without them it is %(warm)s (%(difference)s)."
        ),
        "by_chance": _(
            "So few digits match easily: %(chance)s equally simple statistics are expected to "
            "match by chance."
        ),
    }
