"""What an audit found, in words and sentences."""

from typing import Any

from perfkit.audit.stored import Claim, Explanation, Figure, Finding
from perfkit.words.language import gettext as _
from perfkit.words.recorded import recorded
from perfkit.words.wording import number, percent

DIGITS = 6
"""A printed rate has about so many."""


def state_words(state: str) -> str:
    return {
        "reproduced": _("reproduced"),
        "near": _("near"),
        "not reproduced": _("not reproduced"),
        "no number": _("no number in the log"),
        "no log": _("no log"),
    }[state]


def way_words(figure: Figure) -> str:
    """The statistic of a figure."""
    ways = {
        "told": _("the log's own “%(name)s”"),
        "samples/time": _("samples / time"),
        "clock": _("samples / time by the prints' clock"),
        "mean of rates": _("mean of printed rates"),
        "harmonic mean": _("harmonic mean of printed rates"),
        "median": _("median of printed rates"),
        "last print": _("last print"),
        "first print": _("first print"),
        "maximum": _("highest print"),
        "mean after skipping": _("mean of printed rates without the first %(skipped)d"),
    }
    return ways[figure.statistic] % {"name": figure.name, "skipped": figure.skipped}


def range_words(figure: Figure) -> str:
    """Which steps a figure is of, or where in the log it stands."""
    if figure.statistic == "told":
        return _("line %(line)d") % {"line": figure.line}
    if figure.statistic in ("last print", "first print", "maximum"):
        return _("one print")
    prints = _("%(prints)d prints") % {"prints": figure.prints}
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
        words = _("%(figure)s of one device, times %(devices)d") % told
    return words


def difference_words(share: float | None) -> str:
    return "" if share is None else f"{'+' if share > 0 else ''}{percent(share, 3)}"


def chance_words(claim: Claim) -> str:
    """How many figures were tried, and how easily one as simple agrees by chance."""
    told = {"tried": claim.tried, "chance": number(claim.chance, 2)}
    words = _(
        "%(tried)d figures tried; of those as simple, %(chance)s would be expected to agree by "
        "chance"
    )
    return words % told


def finding_words(finding: Finding) -> str:
    """What was seen, in a sentence."""
    figures = {name: _value(name, value) for name, value in finding.figures.items()}
    return sentences()[finding.name] % figures


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
    """What each finding says, by its name; its figures are put in."""
    return {
        "note": "%(words)s",
        "no_prints": _("No print tells of steps; there are the log's own figures alone."),
        "fewer_steps": _(
            "Of the steps %(first)s to %(last)s of an epoch, prints tell of %(steps)s."
        ),
        "restarts": _("The steps begin again, %(count)s times: several trainings in one file."),
        "missing_prints": _(
            "%(count)s prints are more than %(spacing)s steps after the one before."
        ),
        "clock_differs": _(
            "Over steps %(first)s to %(last)s samples / time is %(right)s by what is printed, "
            "and %(clock)s by the prints' own clock, %(difference)s."
        ),
        "slow_print": _(
            "One print, of %(steps)s of the %(of)s steps, has %(share)s of their time."
        ),
        "mean_of_rates": _(
            "Over steps %(first)s to %(last)s the mean of the printed rates is %(mean)s; "
            "samples / time is %(right)s. The mean is %(share)s higher."
        ),
        "input_wait": _("%(share)s of the steps' time was waited for input."),
        "odd_rates": _(
            "%(count)s printed rates are zero, negative or infinite; they are left out."
        ),
        "rate_not_time": _(
            "Printed rate times printed time of a step is %(samples)s samples; it has "
            "%(batch)s."
        ),
        "negative_accuracy": _(
            "%(count)s printed accuracies are negative, down to %(lowest)s."
        ),
        "loss_not_finite": _("From here on no finite loss is printed."),
        "first_loss": _(
            "The first printed loss is %(loss)s; an untrained network that guesses has one "
            "between %(low)s and %(high)s."
        ),
        "last_loss": _(
            "The last losses are %(loss)s on average; over %(high)s is worse than guessing."
        ),
        "loss_standing": _("All %(count)s printed losses are %(loss)s."),
        "loss_not_falling": _(
            "The loss did not fall: the first prints have %(first)s on average, the last "
            "%(last)s."
        ),
        "same_file": _("These files have the same content: %(files)s."),
        "same_losses": _("The losses of these files begin alike (%(losses)s): %(files)s."),
        "super_linear": _(
            "%(file)s: a device of %(ranks)s is %(share)s faster than one of %(of)s in "
            "%(base)s (samples / time)."
        ),
        "mixed_statistics": _(
            "%(table)s, %(framework)s, %(precision)s: no one statistic explains these numbers, "
            "which are sides of a speed-up. %(figures)s."
        ),
        "one_for_two": _("One log, %(file)s, explains several published numbers: %(places)s."),
        "other_work": _(
            "The log has %(key)s %(log)s; the number is published for %(claimed)s."
        ),
        "ambiguous": _("The log does not tell which of several published numbers is its own."),
        "other_count": _(
            "It is a device's figure times %(devices)s, which is not what the log has."
        ),
        "other_statistic": _(
            "Samples / time over steps %(first)s to %(last)s is %(right)s, %(difference)s from "
            "the claim."
        ),
        "mean_of_running": _(
            "The printed rates are running means, so that a mean of them counts early steps "
            "many times."
        ),
        "warm_up_inside": _(
            "The first 20 steps are in it; without them it is %(warm)s (%(difference)s)."
        ),
        "by_chance": _(
            "So few digits agree easily: of figures as simple, %(chance)s would by chance."
        ),
    }
