"""The sections of a measurement's page, each a piece of HTML that a notebook shows as well."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit import config, strategies
from perfkit.frames import load_steps
from perfkit.models import MODELS
from perfkit.report.charts import step_chart
from perfkit.request import Plan
from perfkit.results import Measurement, Result

TEMPLATES = Environment(
    loader=PackageLoader("perfkit.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

FRAMEWORK_NAMES = {"paddle": "Paddle"}


@dataclass(frozen=True)
class Section:
    """HTML of one section; displays itself in a notebook."""

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return Markup(self.html).striptags()


def render(template: str, **context: Any) -> Section:
    return Section(TEMPLATES.get_template(template).render(context))


def number(value: float | None, digits: int = 4) -> str:
    """`value` to that many significant digits, trailing zeros kept; a dash for None."""
    if value is None:
        return "–"
    if round(abs(value)) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if round(abs(value)) >= 10**digits else f"{value:.0f}"
    return f"{value:#.{digits}g}"


def percent(share: float | None, digits: int = 3) -> str:
    return "–" if share is None else f"{share * 100:.{digits}g} %"


def fact_name(name: str) -> str:
    """A fact's key as a reader would write it: `driver_cuda` is "driver CUDA"."""
    spelt = {"cpu": "CPU", "gpu": "GPU", "gpus": "GPUs", "os": "OS", "cuda": "CUDA"}
    spelt |= {"cudnn": "cuDNN", "nccl": "NCCL", "dali": "DALI", "numpy": "NumPy"}
    return " ".join(spelt.get(word, word) for word in name.split("_"))


def traits(c: config.Config) -> str:
    """What sets a configuration apart that has the same title, batch, topology and input."""
    usual = {"execution": "dynamic", "strategy": "none", "layout": "NCHW", "tf32": False}
    words = [
        str(getattr(c, name)) for name, value in usual.items() if getattr(c, name) != value
    ]
    words += [c.optimizer] if c.optimizer == "lamb" else []
    words += [f"accumulate {c.accumulate}"] if c.accumulate > 1 else []
    words += [f"{c.image_size} px"] if c.image_size not in (None, 224) else []
    words += [f"{c.sequence_length} tokens"] if c.sequence_length not in (None, 128) else []
    return ", ".join(word for word in words if word != "None").replace("True", "TF32")


TEMPLATES.filters |= {
    "traits": traits,
    "number": number,
    "percent": percent,
    "fact_name": fact_name,
}


def title(result: Result) -> str:
    """The configuration in a few words."""
    c = result.config
    device = "CPU" if c.device == "cpu" else gpu_name(result)
    words = [
        MODELS[c.model].name,
        FRAMEWORK_NAMES[c.framework],
        c.precision,
        c.topology,
        device,
    ]
    return " · ".join(words)


def gpu_name(result: Result) -> str:
    names = result.fact("gpus")
    return names[0].split(",")[0] if isinstance(names, list) and names else "GPU"


def command(result: Result) -> str:
    """The command that makes this measurement again, whatever the machine would choose."""
    c, p = result.config, result.protocol
    given: dict[str, Any] = {
        name: getattr(c, name)
        for name, (default, _meaning) in config.parameters().items()
        if name in type(c).model_fields
        and getattr(c, name) != default
        and name not in ("outputs_dir", "gpus", "processes")
    }
    given |= {"processes": c.processes} if c.device == "cpu" else {"gpus": c.gpus}
    given["protocol"] = p.name
    usual = config.Protocol.named(p.name)
    given |= {
        name: getattr(p, name)
        for name in ("warmup_steps", "measured_steps", "repeats")
        if getattr(p, name) != getattr(usual, name)
    }
    words = ["perfkit", "run", c.model]
    for name, value in given.items():
        words += ["-p", name, str(value)]
    return shlex.join(words)


def plan(plan: Plan) -> Section:
    """What will be run, before it runs."""
    steps = plan.protocol.repeats * plan.protocol.steps
    sample = MODELS[plan.config.model].sample
    return render("plan.html.j2", plan=plan, steps=steps, sample=sample)


def headline(measurement: Measurement) -> Section:
    """The number with n and interval, or what went wrong."""
    result = measurement.result
    waits = [repeat.data_wait_share for repeat in result.complete_repeats]
    sample = MODELS[result.config.model].sample
    return render(
        "headline.html.j2", result=result, title=title(result), waits=waits, sample=sample
    )


def parameters(measurement: Measurement) -> Section:
    """What was run, in the words of the parameters and as a command."""
    result = measurement.result
    values = config.parameter_values(result.config, result.protocol)
    rows = [
        (name, values[name], values[name] == default, meaning)
        for name, (default, meaning) in config.parameters().items()
        if name not in ("outputs_dir", "timeout")
    ]
    return render("parameters.html.j2", rows=rows, command=command(result), result=result)


def effective(measurement: Measurement) -> Section:
    """What the run really did, read from inside the workers."""
    result = measurement.result
    return render(
        "effective.html.j2",
        effective=result.effective,
        result=result,
        expected=MODELS[result.config.model].parameters,
        sample=MODELS[result.config.model].sample,
        code=strategies.code(result.config.strategy),
    )


def repeats(measurement: Measurement) -> Section:
    """The table of repeats and, with several ranks, of ranks."""
    result = measurement.result
    ranks = _ranks(result) if result.config.ranks > 1 and result.complete_repeats else []
    return render("repeats.html.j2", result=result, ranks=ranks)


def _ranks(result: Result) -> list[tuple[Any, ...]]:
    """What the repeats say of each rank: number, node, its windows, waits and times alone,
    in how many repeats it was the straggler, memory in GiB."""
    rows = []
    for number in range(result.config.ranks):
        seen = [repeat.ranks[number] for repeat in result.complete_repeats]
        memory = max((rank.memory_bytes or 0) for rank in seen) / 2**30
        rows.append(
            (
                number,
                _node_of(number, result),
                [rank.window_seconds for rank in seen],
                [rank.data_wait_seconds for rank in seen],
                [rank.alone_seconds for rank in seen if rank.alone_seconds is not None],
                sum(repeat.straggler == number for repeat in result.complete_repeats),
                memory or None,
            )
        )
    return rows


def _node_of(rank: int, result: Result) -> str:
    """Names of the nodes that a rank was on; of a single machine, that it is node 0."""
    node = rank // result.config.devices
    names = {r.nodes[node] for r in result.complete_repeats if r.nodes}
    return ", ".join(sorted(names)) or f"node {node}"


def step_times(measurement: Measurement) -> Section:
    """Every step of every repeat, warm-up shaded, with the time spent waiting for input."""
    steps = load_steps(measurement.folder)
    protocol = measurement.result.protocol
    highest = steps["seconds"].max() if len(steps) else 0
    charts = [
        (index, Markup(step_chart(group, protocol.warmup_steps, highest)))
        for index, group in steps.groupby("repeat")
    ]
    return render("step_times.html.j2", charts=charts, result=measurement.result)


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions; what could not be read says why."""
    return render("environment.html.j2", environment=measurement.result.environment)


def method(measurement: Measurement) -> Section:
    """How the number came about."""
    return render("method.html.j2", result=measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, relative to the measurement's folder."""
    folder = measurement.folder
    files = [folder / "result.json", *sorted(folder.glob("repeats/*/*.jsonl"), key=_by_number)]
    files += sorted(folder.glob("logs/*.log"), key=_by_number)
    rows = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    return render("raw_files.html.j2", rows=rows)


def _by_number(path: Path) -> tuple[int, str]:
    """Repeats in their order: 2 before 10."""
    repeat = path.parent.name if path.suffix == ".jsonl" else path.name.split("-")[0]
    return (int(repeat) if repeat.isdigit() else 0, path.name)
