"""The sections on the suite's own figures, which `make bench` makes."""

from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from perfkit.config import resolved_path
from perfkit.report.rendering import Section, render
from perfkit.report.strip import strip
from perfkit.results.figures import Figure, figures_file, read_figures
from perfkit.results.files import ResultError
from perfkit.results.schema import NOT_IDENTITY


@dataclass(frozen=True)
class Bench:
    """What the sections speak of: the figures under `outputs`, by their names."""

    outputs: Path
    figures: dict[str, Figure]

    @classmethod
    def of(cls, outputs: str | Path) -> "Bench":
        """Read the figures under `outputs`; a relative path starts at the checkout. Raises
        ResultError if there are none, or they can't be read."""
        place = resolved_path(str(outputs))
        figures = read_figures(place)
        if not figures:
            raise ResultError(f"no figures in {figures_file(place)}; make them: make bench")
        return cls(place, figures)

    @property
    def newest(self) -> Figure:
        return max(self.figures.values(), key=lambda figure: figure.created)


def figures_overview(bench: Bench) -> Section:
    """How many figures there are, and how they come about."""
    made = [figure.created.astimezone(UTC) for figure in bench.figures.values()]
    return render(
        "figures_overview.html.j2",
        count=len(made),
        failed=[name for name, figure in bench.figures.items() if figure.failure is not None],
        first=min(made),
        last=max(made),
    )


def figures(bench: Bench) -> Section:
    """Every figure: its numbers with interval and every run, and the command that makes it."""
    rows = [
        (name, figure, figure.created.astimezone(UTC), _differences(figure, bench.newest))
        for name, figure in bench.figures.items()
    ]
    return render("figures.html.j2", rows=rows, strip=strip)


def _differences(figure: Figure, newest: Figure) -> list[tuple[str, Any]]:
    """The facts of a figure's environment that are not those of the newest figure's."""
    names = dict.fromkeys([*figure.environment, *newest.environment])
    return [
        (name, figure.fact(name))
        for name in names
        if name not in NOT_IDENTITY and figure.fact(name) != newest.fact(name)
    ]


def figures_environment(bench: Bench) -> Section:
    """Hardware, driver and versions that the newest figure was made with."""
    return render("environment.html.j2", environment=bench.newest.environment)
