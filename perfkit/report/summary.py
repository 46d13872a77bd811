"""The sections of the summary: which is fastest, by how much, how sure, and what limits it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from math import ceil, nan
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from perfkit import config
from perfkit.comparison.keys import FOLLOWING, HARDWARE, WORK
from perfkit.comparison.live import stored
from perfkit.diagnosis.verdict import FILE, Diagnosis, StepParts, read_diagnosis
from perfkit.diagnosis.words import VERDICTS
from perfkit.models import MODELS
from perfkit.reference.cells import cells_of, row_label
from perfkit.reference.matches import PARAMETER, difference_words, match
from perfkit.reference.table import published
from perfkit.report import style
from perfkit.report.comparison import variant_name
from perfkit.report.pages import TEMPLATES
from perfkit.report.section import Section, markup, paragraph, picture, rows_table, table
from perfkit.results.files import ResultError
from perfkit.results.frames import load, records, topology_size
from perfkit.results.schema import NOT_IDENTITY
from perfkit.statistics import median_estimate, ratio_interval
from perfkit.text.format import (
    FRAMEWORK_NAMES,
    column_value,
    device_name,
    interval,
    minute,
    number,
    percent,
)
from perfkit.text.language import current, file_name, gettext_noop
from perfkit.text.language import gettext as _

PROTOCOL = ["protocol", "warmup_steps", "measured_steps"]
FACTS = [*HARDWARE, "driver", "driver_cuda", "os", "kernel"]
MACHINE = ["imported", "nodes_differ", "statistic", *(f"environment.{name}" for name in FACTS)]
"""In these, and in the versions of each framework, the measurements of a table agree."""
SUITE = [f"environment.{fact}" for fact in ("suite", "suite_source", *NOT_IDENTITY)]
ROW = ["block", "model", "used", "batch_size", "topology", "input", "setup"]
"""In these the measurements of a row agree; `used` is the effective precision."""
WAY = [name for name in WORK if name in FOLLOWING["framework"]]
"""How the work is done, which is each framework's own choice."""
SETUP = [name for name in WORK if name not in {*ROW, *WAY, "framework", "device"}]
SETUP += ["effective.tf32", "input_sha256"]
COMPARE = "perfkit compare --live resnet50 framework=paddle framework=torch"
MOST_ROWS, MOST_PANELS, MOST_BARS, MOST_ANSWERS = 200, 12, 40, 5
HTML: Any = TEMPLATES.get_template("summary.html.j2").make_module(
    {"number": number, "interval": interval}
)
PARTS = {
    gettext_noop("forward"): "#7fa8e0",
    gettext_noop("backward"): "#bcd2f0",
    gettext_noop("forward + backward"): "#9dbde8",
    gettext_noop("optimizer"): "#5fa584",
    gettext_noop("communication, not overlapped"): "#cdbff0",
    gettext_noop("other"): "#eceff2",
    gettext_noop("data wait"): style.WAIT,
    gettext_noop("host wait for input"): "#5c3a10",
}
"""The parts of a step in their order and their colours, which differ in lightness too."""


@dataclass(frozen=True)
class Summary:
    """What the sections show: the measurements (perfkit.load) under `outputs`, interleaved
    comparisons by name, diagnoses by their measurement's folder, and why files are left out."""

    outputs: Path
    measurements: pd.DataFrame
    comparisons: dict[str, stored.LiveComparison] = field(default_factory=dict)
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, outputs: str | Path) -> "Summary":
        """Read all that is under `outputs`; a relative path starts at the checkout. Raises
        ResultError if there is no such folder."""
        place, frame = config.resolved_path(str(outputs)), load(outputs)
        found = cls(place, frame, unreadable=[*frame.attrs["unreadable"]])
        diagnosed = [file.parent for file in sorted(place.glob(f"*/{FILE}"))]
        kinds: list[tuple[Iterable[Path], Any, dict[str, Any]]] = [
            (stored.comparison_folders(place), stored.read_comparison, found.comparisons),
            (diagnosed, read_diagnosis, found.diagnoses),
        ]
        for folders, read, kept in kinds:
            for folder in folders:
                try:
                    kept[folder.name] = read(folder)
                except ResultError as error:
                    found.unreadable.append(str(error).replace(f"{place}/", ""))
        return found

    def __repr__(self) -> str:
        return f"Summary({self.outputs}: {len(self.measurements)} measurements)"

    @property
    def newest(self) -> list[tuple[str, stored.LiveComparison]]:
        """The comparisons by name, the newest first."""
        return sorted(self.comparisons.items(), key=lambda one: one[1].created, reverse=True)

    @cached_property
    def placed(self) -> pd.DataFrame:
        """The measurements with the `block` and the `row` of the table that they belong to.
        `count` says how many measurements have the same row and framework; of these, the first
        is preferred: in the newest interleaved comparison, with a throughput, the newest."""
        compared = {side.id: c.created for c in self.comparisons.values() for side in c.sides}
        frame, sizes = self.measurements, self.measurements["topology"].map(topology_size)
        used = frame["effective.precision"]
        frame = frame.assign(
            used=used.where(used.notna(), frame["precision"]),
            compared=[compared.get(one, "") for one in frame["id"]],
            measured=frame["throughput"].notna(),
            devices=sizes.str[0],
            # Processes of a node share its cores.
            resources=sizes.str[0].where(frame["device"] == "gpu", sizes.str[1]),
            name=frame["framework"].map(FRAMEWORK_NAMES),
        )
        first = ["compared", "measured", "created", "folder"]
        frame = frame.sort_values(first, ascending=False, ignore_index=True)
        frame["machine"] = _numbered(frame, ["device", *PROTOCOL, *MACHINE])
        # The newest version of each framework stands beside the newest of the others.
        software = _numbered(frame, ["machine", "framework", *_software(frame)])
        versions = software.groupby([frame["machine"], frame["framework"]])
        frame["version"] = versions.transform(lambda some: some.factorize()[0])
        frame["block"] = _numbered(frame, ["machine", "version"])
        setups = frame.groupby("model")[SETUP].transform("nunique") > 1
        # Frameworks may differ in their ways of one work, but each needs a single one.
        work = [frame[key] for key in ("block", "model", "used", "input")]
        ways = frame.groupby([*work, "framework"])[WAY].transform("nunique", dropna=False)
        several = setups.join(ways.groupby(work).transform("max") > 1)
        frame["setup"] = _words(frame, several)
        frame["row"] = _numbered(frame, ROW)
        return frame.assign(count=frame.groupby(["row", "framework"])["row"].transform("size"))

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The measurement that is shown of each row and framework, in the tables' order."""
        frame = self.placed.drop_duplicates(["row", "framework"])
        frame = frame.assign(order=frame["name"].map([*style.COLOURS].index))
        return frame.sort_values([*ROW[:4], "devices", *ROW[4:], "order"])


def _hint(sentence: str, command: str) -> Section:
    """A section without data: the sentence says so, the command makes the data."""
    return markup(HTML.hint(sentence, command))


def _more(every: int, shown: int, place: str = "") -> Section:
    """How many items a section leaves out, and the place that has them; empty if none."""
    words = {"count": every - shown, "place": place or _("in the index and in results.csv")}
    sentence = _("%(count)d more: %(place)s.") % words
    return paragraph(sentence if every > shown else "", note=True)


def _page(summary: Summary, folder: str) -> str:
    """The path of the page in `folder` below the outputs; empty if there is no such page."""
    page = Path(folder) / file_name("report", current())
    return page.as_posix() if (summary.outputs / page).exists() else ""


def _numbered(frame: pd.DataFrame, keys: list[str]) -> "pd.Series[int]":
    """A number for what agrees in `keys`, in the order of the rows."""
    there = [key for key in keys if key in frame]
    return frame.groupby(there, dropna=False, sort=False).ngroup()


def _software(frame: pd.DataFrame) -> list[str]:
    return sorted({key for key in frame if key.startswith("environment.")} - {*MACHINE, *SUITE})


def _words(frame: pd.DataFrame, shown: pd.DataFrame) -> list[str]:
    """In each row the values of the columns that are `shown` there."""
    values = frame[shown.columns].astype(object)
    rows: list[dict[str, Any]] = values.where(shown & values.notna(), None).to_dict("records")
    pairs = ([pair for pair in row.items() if pair[1] is not None] for row in rows)
    return [" · ".join(column_value(*pair) for pair in row) for row in pairs]


def _tables(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each block below its caption: hardware, versions, protocol, and all in which
    the blocks differ."""
    tables, software = [], _software(frame)
    versions = frame.groupby("framework")[software].nunique(dropna=False).max()
    differ = [key for key in MACHINE if key in frame and frame[key].nunique(dropna=False) > 1]
    differ += [key for key in software if versions[key] > 1]
    for _block, some in frame.groupby("block"):
        row = records(some.head(1))[0]
        device = "environment.gpus" if row["device"] == "gpu" else "environment.cpu"
        names = dict(zip("environment." + some["framework"], some["name"], strict=True))
        words = []
        for key in dict.fromkeys([device, *names, "imported", *differ]):
            if value := " / ".join(
                map(str, some[key].dropna().unique() if key in some else ())
            ):
                words.append(
                    f"{names[key]} {value}" if key in names else column_value(key, value)
                )
        words.append(_("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)") % row)
        tables.append((" · ".join(words), some))
    return tables


def _labels(frame: pd.DataFrame) -> pd.DataFrame:
    """What each row is, as the first columns of a table."""
    columns = {
        _("Model"): frame["model"].map(lambda name: MODELS[name].short_name),
        _("Precision"): frame["used"],
        _("Batch"): frame["batch_size"].map(str),
        _("Topology"): frame["topology"],
        _("Input"): (frame["input"] + " · " + frame["setup"]).str.removesuffix(" · "),
    }
    return pd.DataFrame(columns)


def _titles(
    frame: pd.DataFrame, without: Sequence[str] = (), between: str = " · "
) -> "pd.Series[str]":
    """What each row is, in a line, without the columns of `_labels` that are named."""
    labels = _labels(frame)
    labels[_("Batch")] = [_("batch %(size)s") % {"size": size} for size in labels[_("Batch")]]
    return labels.drop(columns=[*without]).agg(between.join, axis=1)


def _compared(
    summary: Summary,
) -> tuple[list[dict[str, Any]], dict[str, str], set[str | None]]:
    """What the interleaved comparisons say of the rows in which they compare frameworks:
    an answer for each row, by its newest comparison; the ratio of each measurement to Paddle,
    or to the first variant of a comparison without Paddle; and the ids of the leaders. A
    leader has the highest throughput of its row, and the interval of its ratio to each other
    framework lies above 1."""
    rows = {row["id"]: row for row in records(summary.cells)}
    highest = {*summary.cells.sort_values("throughput").groupby("row")["id"].last()}
    answers: dict[int, dict[str, Any]] = {}
    shown: dict[str, str] = {}
    leaders: set[str | None] = set()
    for _name, c in summary.newest:
        sides = {c.base.id: {turn.repeat: turn.a for p in c.pairs for turn in p.turns}}
        sides |= {p.b.name: {turn.repeat: turn.b for turn in p.turns} for p in c.pairs}
        turns, ids = pd.DataFrame(sides), [one for one in sides if one in rows]
        # Paddle is the denominator, or else the base.
        ids.sort(key=lambda one: rows[one]["framework"] != "paddle")
        for row in dict.fromkeys(rows[one]["row"] for one in ids):
            base, *others = some = [one for one in ids if rows[one]["row"] == row]
            ratios = {}
            for a, b in permutations(some, 2):
                quotients = (turns[a] / turns[b]).dropna().tolist()
                ratios[a, b] = median_estimate(quotients or [nan], c.level)
            ahead = {ab for ab, r in ratios.items() if r.low > 1 and r.level >= c.level}
            values = {one: ratios[one, base].value for one in others}
            known = [one for one in others if values[one] > 0]
            words = {}
            for one in known:
                value, low, high, _level = ratios[one, base]
                over = f"{number(value, 3)} × {rows[base]['name']}"
                words[one] = f"{over} ({interval(low, high, 3)})"
            shown = dict.fromkeys(some, "") | words | shown
            if not known or row in answers:
                continue
            top, *less = sorted([base, *known], key=lambda one: -values.get(one, 1))
            first = [top, *(one for one in less if (top, one) not in ahead)]
            slower = [one for one in less if all((a, one) in ahead for a in first)]
            best = max(known, key=lambda one: values[one])
            leaders |= {top} & highest if len(first) == 1 else set()
            apart = first if len(first) > 1 and base not in first else []
            answers[row] = rows[best] | {
                "base": rows[base]["name"],
                "ratio": words[best],
                "leader": rows[top]["name"] if top in leaders else "",
                "undecided": f" {_('or')} ".join(rows[one]["name"] for one in apart),
                "slower": ", ".join(rows[one]["name"] for one in slower),
            }
    return [*answers.values()], shown, leaders


def _titled(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest answer of each `title`. A title has model, precision and batch, and topology,
    input and device where answers differ in them."""
    frame = pd.DataFrame(answers)
    labels = _labels(frame)
    alike = labels.groupby([_("Model"), _("Precision"), _("Batch")])
    same = [key for key in (_("Topology"), _("Input")) if alike[key].nunique().max() < 2]
    devices = [device_name(row) for row in answers]
    frame["title"] = _titles(frame, same, " ")
    if len({*devices}) > 1:
        frame["title"] += [f" · {device}" for device in devices]
    return records(frame.drop_duplicates("title").sort_values(["model", "used", "batch_size"]))


def fastest(summary: Summary) -> Section:
    """Throughput by framework, with its interval and its ratio to Paddle, in a table for each
    hardware, protocol and set of versions; above them the fastest framework of each row that an
    interleaved comparison covers."""
    frame = summary.cells
    if frame.empty:
        return _hint(_("There are no measurements yet. To measure:"), "perfkit run resnet50")
    answers, ratios_shown, leaders = _compared(summary)
    sentence = _("Not decided which framework is fastest. To compare frameworks in turn:")
    section = _hint(sentence, COMPARE)
    if answers:
        answers = _titled(answers)
        section = markup(HTML.answers(answers[:MOST_ANSWERS]))
        section += _more(len(answers), MOST_ANSWERS, _("in the tables below"))
    shown = frame[frame["row"].isin(frame["row"].unique()[:MOST_ROWS])]
    others = shown["framework"] != "paddle"
    paddle = shown[~others].set_index("row")["throughput"]
    apart = (shown["throughput"] / shown["row"].map(paddle)).where(others)
    separate = [f"≈ {number(ratio, 3)} × Paddle" if ratio > 0 else "" for ratio in apart]
    texts = []
    for row, other in zip(records(shown), separate, strict=True):
        page, ratio = _page(summary, row["folder"]), ratios_shown.get(row["id"], other)
        texts.append(Markup(HTML.cell(row, page, ratio, row["id"] in leaders)))
    for caption, some in _tables(shown.assign(text=texts)):
        wide = some.pivot(index="row", columns="name", values="text").fillna("–")
        labels = some.drop_duplicates("row").set_index("row")
        labels = _labels(labels).assign(**{_("Unit"): labels["unit"]})
        names = [name for name in style.COLOURS if name in wide]
        section += table(labels.join(wide[names]), caption)
    levels = frame["interval_level"].dropna()
    ends = [percent(level, 4) for level in (levels.min(), levels.max()) if len(levels)]
    signs = (any(ratios_shown.values()), leaders, "≈" in "".join(texts))
    cut = _more(frame["row"].nunique(), shown["row"].nunique())
    return section + markup(HTML.notes(ends, *signs)) + cut


def ratios(summary: Summary) -> Section:
    """Each variant of each interleaved comparison over the base, with interval and pairs."""
    every = [(name, c, pair) for name, c in summary.newest for pair in c.pairs]
    if not every:
        return _hint(_("There are no interleaved comparisons yet. To make one:"), COMPARE)
    rows, lines = [], []
    for name, c, pair in every:
        model, variant = MODELS[c.model].short_name, c.side_of(pair)
        title = f"{variant_name(variant)} / {variant_name(c.base)}"
        ends, level = interval(*pair.interval, 3), percent(pair.interval_level, 4)
        link, made = HTML.link(_page(summary, f"comparisons/{name}"), title), minute(c.created)
        rows.append([model, link, number(pair.ratio, 3), ends, level, len(pair.turns), made])
        lines.append((f"{model} · {title}", variant, pair))
    headings = [_("Model"), _("Variants"), _("Ratio"), _("Interval"), _("Level"), _("Pairs")]
    figure = style.forest(lines[:MOST_BARS], _("ratio of throughputs; right of 1 is faster"))
    shown = picture(figure, _("Ratios of interleaved comparisons"))
    shown += _more(len(lines), MOST_BARS, _("in the table below"))
    return shown + rows_table([*headings, _("Measured")], rows)


def _charts(frame: pd.DataFrame, vary: str, heading: str, x: str) -> Section:
    """A figure for each table of the `frame`. A panel shows the rows that agree in all but
    `vary`: throughput / `scale` over `x`, a line for each framework and `source`."""
    keys, section = [key for key in ROW if key != vary], Section()
    numbers = _numbered(frame, keys)
    frame = frame[numbers < MOST_PANELS]
    for caption, some in _tables(frame):
        panels = [panel for _key, panel in some.groupby(keys, sort=False)]
        columns, rows = min(len(panels), 3), ceil(len(panels) / 3)
        size = (3.4 * columns + 0.4, 2.8 * rows + 0.2)
        with style.new_figure(*size, columns, rows) as (figure, places):
            for axes in places[len(panels) :]:
                axes.set_axis_off()
            for axes, panel in zip(places, panels, strict=False):
                for (name, source), line in panel.groupby(["name", "source"], sort=False):
                    _draw(axes, line, x, name, bool(source))
                values = panel[vary].astype(str).groupby(panel[x]).unique().map("\n".join)
                axes.set_title(_titles(panel.head(1), [heading]).iloc[0], fontsize=8)
                axes.set(xscale="log", xlabel=heading, ylabel=panel["unit"].iloc[0])
                axes.set_xticks(values.index.astype(float), values)
                axes.xaxis.set_minor_locator(NullLocator())
                if vary == "topology":
                    _compare_to_ideal(axes, panel)
                axes.legend(fontsize=7)
        section += paragraph(caption, note=True) + picture(figure, caption)
    return section + _more(numbers.max() + 1, MOST_PANELS)


def _draw(axes: Axes, line: pd.DataFrame, x: str, name: str, is_published: bool) -> None:
    """A line with the intervals and repeats of what was measured, hollow if published."""
    look: dict[str, Any] = {"color": style.COLOURS[name], "marker": style.MARKERS[name]}
    if is_published:
        look |= {"mfc": "white", "ls": ":"}
        name = _("%(name)s, published") % {"name": name}
    ends = ["throughput", "throughput_low", "throughput_high"]
    y, low, high = (line[ends].astype(float).T / line["scale"]).to_numpy()
    # The median of all ratios lies in its interval, the ratio of the medians nearly always.
    ends_of_bars = [(y - low).clip(0), (high - y).clip(0)]
    axes.errorbar(line[x], y, ends_of_bars, capsize=3, label=name, **look)
    dots = line.explode("repeat_throughputs")
    heights = dots["repeat_throughputs"].astype(float) / dots["scale"]
    axes.scatter(dots[x], heights, s=5, alpha=0.5, color=look["color"])
    style.from_zero(axes, axes.dataLim.y1)


def _compare_to_ideal(axes: Axes, panel: pd.DataFrame) -> None:
    """Make the axis one of speed-ups, on which the ideal is a straight line. Draw the ideal and
    write the efficiency at each measured point, unless the processes share the cores."""
    panel = panel.sort_values("devices")
    devices, least = panel["devices"].astype(float), panel["devices"].min()
    if not _shares_cores(panel):
        axes.plot(devices, devices / least, "--", color=style.IDEAL, label=_("ideal"))
        for one in records(panel[(panel["source"] == "") & (devices > least)]):
            gain, below = one["throughput"] / one["scale"], (4, -9 * (one["order"] + 1))
            share, at = percent(gain / one["devices"] * least, 2), (one["devices"], gain)
            colour = style.COLOURS[one["name"]]
            axes.annotate(share, at, below, textcoords="offset points", color=colour, size=7)
    ends = (axes.dataLim.y0 / style.HEADROOM, axes.dataLim.y1 * style.HEADROOM)
    axes.set(yscale="log", ylabel=_("speed-up"), ylim=ends)
    axes.yaxis.set_major_locator(LogLocator(2, subs=(1, 1.5)))
    axes.yaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())


def _shares_cores(panel: pd.DataFrame) -> bool:
    """Whether the processes of a node share its cores, so that no speed-up is the ideal one."""
    return bool((panel["devices"] / panel["resources"]).nunique() > 1)


def _varying(summary: Summary, vary: str) -> pd.DataFrame:
    """What was measured at several values of `vary`."""
    frame = summary.cells[summary.cells["measured"]].assign(source="", scale=1.0)
    keys = [key for key in ROW if key != vary]
    return frame[frame.groupby(keys)[vary].transform("nunique") > 1]


def throughput_by_batch(summary: Summary) -> Section:
    """Throughput over batch size, or the command that measures several batch sizes."""
    frame = _varying(summary, "batch_size")
    if frame.empty:
        sentence = _("Every model was measured at a single batch size. To measure several:")
        return _hint(sentence, "perfkit sweep parameters/quick.yaml")
    return _charts(frame, "batch_size", _("Batch"), "batch_size")


def scaling(summary: Summary) -> Section:
    """Speed-up over the fewest devices, beside the ideal and the published speed-up."""
    measured = _varying(summary, "topology")
    if measured.empty:
        return paragraph(_("Every model was measured on a single topology."))
    keys = [key for key in ROW if key != "topology"]
    every = pd.concat([measured, _published_beside(measured)], ignore_index=True)
    every = every.sort_values([*keys, "order", "devices", "topology"])
    lines = every.groupby([*keys, "name", "source"])
    first = lines[["throughput", "resources", "repeat_throughputs"]].transform("first")
    # The first of each line lies on the ideal.
    least = every.groupby(keys)["resources"].transform("min")
    every["scale"] = first["throughput"] * least / first["resources"]
    ends = []
    pairs = zip(every["repeat_throughputs"], first["repeat_throughputs"], strict=True)
    for some, base in pairs:
        # Published numbers and single repeats have no interval, and the first of a line is 1.
        able = isinstance(some, tuple) and some is not base and len(some) > 1 < len(base)
        ends.append(ratio_interval(some, base)[1:3] if able else (nan, nan))
    low_high = pd.DataFrame(ends, every.index).mul(first["throughput"], axis=0)
    every[["throughput_low", "throughput_high"]] = low_high
    sentence = _("Error bars: interval of the ratio to the repeats on the fewest devices.")
    shared = any(_shares_cores(panel) for _key, panel in every.groupby(keys))
    reason = _("No ideal line where the processes share the cores.") if shared else ""
    charts = _charts(every, "topology", _("Topology"), "devices")
    return charts + paragraph(sentence, reason, note=True)


def _published_beside(measured: pd.DataFrame) -> pd.DataFrame:
    """The published throughputs of the work that was measured on GPUs, as rows like those."""
    names = {"precision": "used", "batch_per_gpu": "batch_size", "gpus": "devices"}
    known = pd.DataFrame(cells_of(published())).dropna(subset="throughput")
    known = known.replace({"model": PARAMETER, "framework": PARAMETER}).rename(columns=names)
    known = known.assign(
        source=known["table"] + known["note"].fillna(""), resources=known["devices"]
    )
    same = ["model", "framework", "used", "batch_size"]
    new = ["source", "topology", "devices", "resources", "throughput"]
    none = ["throughput_low", "throughput_high", "repeat_throughputs"]
    works = [*same, "block", "input", "setup"]
    beside = measured[measured["device"] == "gpu"].drop_duplicates(works)
    known = known[[*same, *new]].astype({"batch_size": object})
    return beside.drop(columns=[*new, *none]).merge(known, on=same)


def _parts(found: StepParts, waits: float, device: str) -> dict[str, float]:
    """The parts of a profiled step as shares of it. The step contains the wait for the input,
    whose share `waits` is that of the measurement."""
    passes = {"forward": found.forward, "backward": found.backward}
    known = {
        name: seconds / found.step for name, seconds in passes.items() if seconds is not None
    }
    rest_is = "other" if len(known) == 2 else "forward + backward"
    known = (known if rest_is == "other" else {}) | {"optimizer": found.optimizer / found.step}
    rest = max(0.0, 1 - sum(known.values()))
    wait = min(rest, waits)
    exposed = min(rest - wait, (found.communication or 0) / found.step)
    known["host wait for input" if device == "gpu" else "data wait"] = wait
    return known | {"communication, not overlapped": exposed, rest_is: rest - wait - exposed}


def bottlenecks(summary: Summary) -> Section:
    """What limits each diagnosed measurement: the parts of its step, and the verdict."""
    every = summary.placed[summary.placed["folder"].isin([*summary.diagnoses])]
    frame = every.head(MOST_BARS)
    if frame.empty:
        sentence = _("There are no diagnoses yet. To find out what limits a measurement:")
        return _hint(sentence, "perfkit diagnose resnet50")
    frame = frame.assign(title=frame["name"] + " · " + _titles(frame))
    bars, rows, labels = [], [], []
    for one in records(frame):
        found, title = summary.diagnoses[one["folder"]], one["title"]
        limit, ends = _(VERDICTS[found.verdict]), " – ".join(map(percent, found.interval))
        bars.append(_parts(found.step_parts, one["data_wait_share"] or 0, one["device"]))
        link = HTML.link(_page(summary, one["folder"]), title)
        rows.append([link, limit, percent(found.ratio), ends])
        labels.append(f"{title}\n{limit}")
    parts = pd.DataFrame(bars).fillna(0.0)
    parts = parts[[name for name in PARTS if name in parts]]
    with style.new_figure(9, 1 + 0.5 * len(frame)) as (figure, [axes]):
        left = parts.cumsum(axis=1) - parts
        for name in parts:
            bar = axes.barh(
                parts.index, parts[name], left=left[name], color=PARTS[name], label=_(name)
            )
            texts = [percent(share, 2) if share > 0.04 else "" for share in parts[name]]
            ink = "white" if "wait" in name else style.INK
            axes.bar_label(bar, texts, label_type="center", color=ink)
        axes.set_yticks(parts.index, labels)
        axes.invert_yaxis()
        style.from_zero(axes, 1 / style.HEADROOM, "x")
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.set_xlabel(_("share of the step"))
        figure.legend(loc="outside lower center", ncols=6)
    headings = [_("Measurement"), _("Limited by"), _("With input / synthetic input")]
    shown = picture(figure, _("Steps by their parts"))
    return shown + rows_table([*headings, _("Interval")], rows) + _more(len(every), len(frame))


def beside_published(summary: Summary) -> Section:
    """The published numbers beside the measurements of the same work, with the differences."""
    measured = records(summary.cells[summary.cells["measured"]])
    rows = []
    for one in (one for one in match(cells_of(published()), measured) if one.ratio):
        link = HTML.link(_page(summary, one.row["folder"]), number(one.row["throughput"]))
        source = f"{one.cell['source']}: {row_label(one.cell)}"
        differences = "; ".join(difference_words(one.differs))
        rows.append([source, one.cell["printed"], link, number(one.ratio, 3), differences])
    page = Markup(HTML.link(_page(summary, "published"), _("Published tables")))
    if not rows:
        return paragraph(_("Nothing was measured at the place of a published number."), page)
    headings = [_("Source"), _("Published"), _("Measured"), _("Measured / published")]
    shown = rows_table([*headings, _("Differences")], rows[:MOST_ROWS])
    return shown + _more(len(rows), MOST_ROWS) + paragraph(page)


def left_out(summary: Summary) -> Section:
    """The files that could not be read, each with the reason."""
    if not summary.unreadable:
        return paragraph(_("Every file could be read."))
    return table(pd.DataFrame({_("Left out"): summary.unreadable}))
