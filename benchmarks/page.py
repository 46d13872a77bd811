"""The page of the self-benchmark, OUTPUTS/bench/report.html, in English only."""

from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup
from matplotlib.figure import Figure as Chart
from stored import Figure, Number, figures_file, read_figures

from perfkit.report import pages, section
from perfkit.report.style import Dots, dot_plot
from perfkit.results.schema import NOT_IDENTITY
from perfkit.text.format import fact_name, interval, minute, number, percent, stored_value

CONTENT = """<h1>The suite's own figures</h1>
<p>What perfkit costs and what its settings give. A value is the median of its runs; the value
of a ratio is the median of the ratios of interleaved pairs, in which drift of the machine
cancels. The interval lies between two order statistics, at the level it achieves; the interval
of a share is exact (Clopper and Pearson). A speed holds for its machine and time of day.</p>
{% for name, figure in figures %}
<h2><code>{{ name }}</code></h2>
<p>{{ figure.about }}</p>
{% if figure.failure %}<p class="failed">Failed: {{ figure.failure }}</p>{% endif %}
<pre class="command">{{ figure.command }}</pre>
<p class="note">{{ origin(figure) }}</p>
{{ table(rows(figure), ["Number", "Value", "Interval", "Level", "Runs"], name) }}
{% set plot = run_plot(figure.numbers) %}
{% if plot %}<figure role="img" aria-label="{{ name }}">{{ picture(plot) }}</figure>{% endif %}
{% endfor %}
<h2>Environment of the newest figure</h2>
{{ table(facts, ["Fact", "Value"], "Environment") }}"""


def write_page(outputs: Path) -> Path:
    """Write the page of the stored figures, at least one, and return its path."""
    figures, folder = read_figures(outputs), figures_file(outputs).parent
    newest = max(figures.values(), key=lambda figure: figure.created)
    facts = [
        (fact_name(name), f"not read: {r.missing}" if r.missing else stored_value("", r.value))
        for name, r in newest.environment.items()
    ]
    content = Template(CONTENT, autoescape=True).render(
        {"figures": figures.items(), "facts": facts, "run_plot": run_plot},
        rows=lambda figure: map(row, figure.numbers),
        origin=lambda figure: origin(figure, newest),
        table=lambda *cells: Markup(section.table(*cells).html),
        picture=lambda plot: Markup(section.picture(plot, "").html),
    )
    page: dict[str, Any] = {"title": "The suite's own figures", "files": ["figures.json"]}
    page |= {"made": minute(newest.created.isoformat()), "languages": ["en"]}
    pages.write_page(folder, Markup(content), outputs=outputs, **page)
    return folder / "report.html"


def origin(figure: Figure, newest: Figure) -> str:
    """Return when the figure was made and how its environment differs from the newest one's."""
    text = f"Made {minute(figure.created.isoformat())} in {number(figure.seconds, 2)} s, "
    text += f"commit {str(figure.fact('suite_commit') or 'unknown')[:12]}"
    text += " with uncommitted changes" if figure.fact("suite_modified") else ""
    others = [
        f"{fact_name(fact)} {'–' if figure.fact(fact) is None else figure.fact(fact)}"
        for fact in {**figure.environment, **newest.environment}
        if fact not in NOT_IDENTITY and figure.fact(fact) != newest.fact(fact)
    ]
    text += f". Environment differs from below: {'; '.join(others)}" if others else ""
    return f"{text}."


def row(entry: Number) -> list[str]:
    """Return a number's table row, with its runs folded."""
    lines = [f"{number(a)} / {number(b)} = {number(a / b)}" for a, b in entry.pairs]
    lines += map(number, entry.values)
    folded = Markup("<details><summary>n={0}</summary>{1}</details>" if lines else "{2} of {0}")
    runs = folded.format(entry.n, Markup("<br>").join(lines), entry.hits)
    unit = "medians {1} / {2} {0}" if entry.pairs else "{0}"
    value = f"{number(entry.value)} " + unit.format(entry.unit, *map(number, entry.medians))
    ends = interval(*entry.interval or (None, None))
    return [entry.name, value, ends, percent(entry.interval_level, 4), runs]


def run_plot(numbers: list[Number]) -> Chart | None:
    """Plot runs as ratios of pairs or to their median; None without several positive runs."""
    dots = []
    for entry in numbers:
        if entry.n > 1 and min(entry.runs, default=0) > 0:
            unit = 1 if entry.pairs else entry.value
            ends = entry.interval and (entry.interval[0] / unit, entry.interval[1] / unit)
            runs = [run / unit for run in entry.runs]
            dots.append(Dots(entry.name, runs, entry.value / unit, ends, number(entry.value)))
    return dot_plot(dots, "ratio of a pair, or run / median") if dots else None
