"""The sections on a live comparison, whose sides were measured in turn."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perfkit.comparison.keys import beside
from perfkit.comparison.live.stored import JudgedInTurn, LiveComparison, read_comparison
from perfkit.comparison.live.verdict import disagreements
from perfkit.config import resolved_path
from perfkit.models import MODELS
from perfkit.report.rendering import Section, render
from perfkit.report.strip import strip
from perfkit.statistics import fewest_values
from perfkit.words.language import current, file_name
from perfkit.words.language import gettext as _
from perfkit.words.wording import number, percent


@dataclass(frozen=True)
class InTurn:
    """What the sections speak of: the comparison in `folder`."""

    folder: Path
    comparison: LiveComparison

    @classmethod
    def of(cls, folder: str | Path) -> "InTurn":
        """Read the comparison; a relative path starts at the checkout. Raises ResultError."""
        place = resolved_path(str(folder))
        return cls(place, read_comparison(place))

    @property
    def outputs(self) -> Path:
        return self.folder.parent.parent

    @property
    def created(self) -> str:
        return self.comparison.created

    @property
    def title(self) -> str:
        sides = " · ".join(side.name for side in self.comparison.sides)
        return f"{MODELS[self.comparison.model].name}: {sides}"

    @cached_property
    def trouble(self) -> list[str]:
        return disagreements(self.comparison, self.outputs)

    def page_of(self, measurement: str) -> str:
        """The page of a side's measurement, as this one links to it; empty if there is none."""
        name = file_name("report", current())
        there = (self.outputs / measurement / name).exists()
        return f"../../{measurement}/{name}" if there else ""


def in_turn_headline(compared: InTurn) -> Section:
    """Each side against the base in one sentence, or what went wrong."""
    comparison = compared.comparison
    return render(
        "in_turn_headline.html.j2",
        title=compared.title,
        comparison=comparison,
        sentences=[(pair, sentence(pair, comparison)) for pair in comparison.pairs],
    )


def sentence(pair: JudgedInTurn, comparison: LiveComparison) -> str:
    """The verdict on a side in words."""
    told = {
        "side": comparison.side_of(pair).name,
        "base": comparison.base.name,
        "level": percent(comparison.level, 4),
        "reached": percent(pair.interval_level, 4),
        "n": len(pair.turns),
        "enough": fewest_values(comparison.level),
        "times": number(pair.ratio),
    }
    match pair.verdict:
        case "faster":
            words = _("%(side)s is faster than %(base)s: %(times)s times its throughput.")
        case "slower":
            words = _("%(side)s is slower than %(base)s: %(times)s times its throughput.")
        case "no difference":
            words = _("No difference between %(side)s and %(base)s is shown at %(level)s.")
        case "undecided":
            words = _(
                "Undecided at %(level)s: %(n)s pairs reach %(reached)s at most, %(enough)s "
                "would do."
            )
    return words % told


def in_turn_sides(compared: InTurn) -> Section:
    """The sides: throughput with interval, shares of ceilings, warnings, failures."""
    comparison = compared.comparison
    pages = {side.id: compared.page_of(side.id) for side in comparison.sides}
    return render("in_turn_sides.html.j2", comparison=comparison, pages=pages, beside=beside)


def in_turn_pairs(compared: InTurn) -> Section:
    """Every side's ratio to the base with its interval, and every pair of repeats."""
    comparison = compared.comparison
    return render(
        "in_turn_pairs.html.j2",
        comparison=comparison,
        pages={side.id: compared.page_of(side.id) for side in comparison.sides},
        strip=strip,
        trouble=compared.trouble,
    )


def in_turn_differences(compared: InTurn) -> Section:
    """In what the sides differ, and in what they agree."""
    return render("in_turn_differences.html.j2", comparison=compared.comparison, beside=beside)


def in_turn_command(compared: InTurn) -> Section:
    """The command that makes the comparison."""
    return render("in_turn_command.html.j2", comparison=compared.comparison)
