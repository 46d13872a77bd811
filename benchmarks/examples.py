"""Measures the examples of outputs/examples anew, by perfkit's commands, on one machine.

python benchmarks/examples.py [GROUP …] needs an idle machine with 2 cores, Slurm (apt-get
install slurm-wlm munge), g++, `make .venv/test peers`, and a commit without changes, which
every measurement names. It measures into outputs/, which must have no other results; the last
group, pages, then replaces outputs/examples. After an interruption, the same command goes on.

--list shows the groups, their expected minutes and what has finished. --trial runs each command
with a few small steps, from any commit, into outputs/trial.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import example_pages
from example_pages import FLEET_OPTIONS
from measuring import as_options
from slowing import own_workers, slowed, workers_on
from stages import Group, Record, Stage, StageError, perfkit, run_stages

from perfkit.measuring.paths import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from made.clusters import slurm_cluster, slurm_missing

MXNET = ".venv-mxnet/bin/python"
"""An interpreter of `make peers`."""
RECORD = "measured.json"
"""What has finished, in the folder of the results."""
ANY_VERDICT = (0, 1)
"""Exit statuses of a comparison: 1 if a variant is slower."""
TRIAL = {
    "image_size": 32,
    "sequence_length": 32,
    "warmup_steps": 1,
    "measured_steps": 2,
    "measured_seconds": 0,
    "warmup_limit": 40,
    "repeats": 2,
}
"""Values that a trial sets in the place of others."""


@dataclass(frozen=True)
class Place:
    """The folder of the results, from the checkout, and whether commands are only tried."""

    outputs: str
    is_trial: bool

    @property
    def folder(self) -> Path:
        return ROOT / self.outputs

    def tried(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters, in a trial with its values in the place of theirs."""
        if not self.is_trial:
            return parameters
        replaced = parameters.keys() & TRIAL.keys()
        return parameters | {name: TRIAL[name] for name in replaced}

    def options(self, **parameters: Any) -> list[str]:
        """Return `-p` options for these parameters; those that are None have no option, unless
        a trial sets them."""
        parameters = self.tried(parameters)
        if self.is_trial:
            parameters["outputs_dir"] = self.outputs
        chosen = {name: value for name, value in parameters.items() if value is not None}
        return as_options(chosen)

    def compare(self, work: str, variants: Sequence[str], **parameters: Any) -> None:
        """Measure variants with interleaved repeats. Raises StageError unless every variant has
        all its repeats."""
        options = self.options(device="cpu", **parameters)
        if self.is_trial:
            # Two repeats are too few for a verdict at the usual level.
            options += ["--level", "50"]
        words = ["compare", "--live", work, *variants, *options]
        perfkit(*words, statuses=ANY_VERDICT)
        comparison = self.comparison(shlex.join(["perfkit", *words]))
        for variant in comparison["variants"]:
            if variant["number"]["n"] != comparison["repeats"]:
                raise StageError(f"{variant['name']} is not complete")

    def comparison(self, command: str) -> dict[str, Any]:
        """Return the stored comparison that a command made."""
        for file in self.folder.glob("comparisons/*/comparison.json"):
            comparison: dict[str, Any] = json.loads(file.read_text())
            if comparison["command"] == command:
                return comparison
        raise StageError("it stored no comparison")

    def sweep(
        self, spec: dict[str, Any], *options: str, environment: dict[str, str] | None = None
    ) -> None:
        """Measure every configuration of a parameters file with this content."""
        parameters = self.tried({"device": "cpu", **spec["parameters"]})
        parameters["outputs_dir"] = self.outputs
        with TemporaryDirectory() as folder:
            file = Path(folder) / "sweep.json"
            file.write_text(json.dumps(spec | {"parameters": parameters}))
            perfkit("sweep", str(file), *options, environment=environment)


# Frameworks on each model.


@dataclass(frozen=True)
class Model:
    """A model that several frameworks train in turn after Paddle, with the parameters of the
    measurement, and the minutes of verifying and of measuring."""

    name: str
    others: Sequence[str]
    verify_minutes: float
    minutes: float
    size: dict[str, int]
    steps: dict[str, int]

    def group(self, place: Place) -> Group:
        verify = partial(self.verify, place)
        compare = partial(self.compare, place)
        stages = [
            Stage("the frameworks' work, compared", self.verify_minutes, verify),
            Stage("the frameworks in turn", self.minutes, compare),
        ]
        return Group(self.name, stages)

    def verify(self, place: Place) -> None:
        names = ["paddle"]
        for other in self.others:
            names.append(f"mxnet:{MXNET}" if other == "mxnet" else other)
        options = place.options(**self.size)
        # In images as small as a trial's, float32 rounds too much.
        statuses = [0, 1] if place.is_trial else [0]
        frameworks = ",".join(names)
        perfkit("verify", self.name, "--frameworks", frameworks, *options, statuses=statuses)

    def compare(self, place: Place) -> None:
        variants = ["framework=paddle"]
        for other in self.others:
            python = f",python={MXNET}" if other == "mxnet" else ""
            variants.append(f"framework={other}{python}")
        place.compare(self.name, variants, input="synthetic", **self.size, **self.steps)


SHORT = {"warmup_steps": 2, "measured_steps": 5, "repeats": 6}
"""For steps of a second. Repeats are as many as a verdict at 95 % needs."""
MODELS = [
    Model(
        name="resnet50",
        others=["torch", "jax", "tensorflow", "mxnet"],
        verify_minutes=3,
        minutes=8,
        size={"image_size": 224},
        steps=SHORT,
    ),
    Model(
        name="bert",
        others=["torch", "jax", "tensorflow"],
        verify_minutes=5,
        minutes=9,
        size={"sequence_length": 128},
        steps=SHORT,
    ),
    Model(
        name="gpt",
        others=["torch", "jax"],
        verify_minutes=4,
        minutes=7,
        size={"sequence_length": 128},
        steps=SHORT,
    ),
    Model(
        name="llama",
        others=["torch", "jax"],
        verify_minutes=2,
        minutes=7.5,
        size={"sequence_length": 128},
        steps={"warmup_steps": 5, "measured_steps": 20, "repeats": 7},
    ),
]


# Single measurements and comparisons.


def script(place: Place) -> Group:
    """A training script of the user's own, eager and compiled."""
    variants = ["arguments=", "arguments=--compile"]
    steps = {"warmup_steps": 10, "measured_steps": 40, "repeats": 7}
    compare = partial(place.compare, "examples/gpt_torch.py", variants, **steps)
    return Group("script", [Stage("a script, eager and compiled, in turn", 5, compare)])


def command(place: Place) -> Group:
    """A trainer timed by its own log, with and without recomputed activations."""
    # The bar tells the steps.
    options = "--disable_tqdm False --logging_steps 1 --max_steps 100000"
    train = f".venv/bin/python examples/huggingface.py {options}"
    variants = ["flags=", "flags=--gradient_checkpointing True"]
    # What its log does not tell.
    told = {"batch_size": 8, "sequence_length": 128}
    steps = {"warmup_steps": 10, "measured_steps": 40, "repeats": 7}
    compare = partial(place.compare, f"command={train}", variants, **told, **steps)
    return Group("command", [Stage("a trainer by its own log, in turn", 5, compare)])


def diagnosis(place: Place) -> Group:
    """What limits a training whose images one worker of a DataLoader decodes."""
    size = {"framework": "torch", "batch_size": 64, "image_size": 32}
    # The loss of so few real images soon diverges.
    steps = {"dataloader_workers": 1, "warmup_steps": 4, "measured_steps": 15}
    variants = ["input=synthetic", "input=dataloader"]
    compare = partial(place.compare, "resnet50", variants, **size, **steps, repeats=11)
    options = place.options(device="cpu", input="dataloader", **size, **steps)
    diagnose = partial(perfkit, "diagnose", "resnet50", *options)
    return Group(
        "diagnosis",
        [
            Stage("DataLoader against synthetic input", 7, compare),
            Stage("the DataLoader alone", 1, diagnose),
        ],
    )


def profile(place: Place) -> Group:
    """Where a step of GPT-2 goes."""
    steps = {"warmup_steps": 2, "measured_steps": 5, "repeats": 5}
    size = {"framework": "torch", "input": "synthetic", "sequence_length": 128}
    options = place.options(device="cpu", **size, **steps, profile=True, label="profiled")
    run = partial(perfkit, "run", "gpt", *options)
    return Group("profile", [Stage("a step under the profiler", 2, run)])


# A history with a drop and a recovery.

THROTTLED = "throttled"
BEFORE, DURING, AFTER = (
    ["before-1", "before-2", "before-3"],
    [f"{THROTTLED}-1", f"{THROTTLED}-2"],
    ["after-1", "after-2"],
)
"""Labels of the measurements. The workers of those called throttled are stopped for a third of
the time, as a machine that throttles does."""


def history(place: Place) -> Group:
    """A series that drops while its machine is throttled, and recovers."""
    stages = [
        *[series_stage(place, label) for label in BEFORE + DURING],
        Stage("the drop is found", 0.2, partial(check_history, place, drop=True)),
        *[series_stage(place, label) for label in AFTER],
        Stage("the recovery is found", 0.2, partial(check_history, place, drop=False)),
    ]
    return Group("history", stages)


def series_stage(place: Place, label: str) -> Stage:
    minutes = 2 if label.startswith(THROTTLED) else 1.3
    return Stage(f"the measurement {label}", minutes, partial(run_of_series, place, label))


def run_of_series(place: Place, label: str) -> None:
    slowing: AbstractContextManager[None] = nullcontext()
    if label.startswith(THROTTLED):
        slowing = slowed(own_workers)
    size = {"framework": "paddle", "input": "synthetic", "batch_size": 4, "image_size": 64}
    steps = {"warmup_steps": 5, "measured_steps": 15, "repeats": 5}
    options = place.options(device="cpu", **size, **steps, label=label)
    with slowing:
        perfkit("run", "resnet50", *options)


def check_history(place: Place, *, drop: bool) -> None:
    """Raise StageError unless the history has regressed, or has not, which a trial is too short
    for."""
    statuses = [0, 1] if place.is_trial else [int(drop)]
    perfkit("history", place.outputs, "--check", statuses=statuses)


# A fleet with a slow node.

SLOW_NODE = "node2"
FLEET = {
    "notebook": "resnet50",
    "protocol": "quick",
    "parameters": {
        "framework": "torch",
        "batch_size": 4,
        "image_size": 64,
        "input": "synthetic",
        "warmup_steps": 5,
        "measured_steps": 30,
        "repeats": 15,
    },
}


def fleet(place: Place) -> Group:
    """Four nodes of a Slurm cluster on this machine, of which one is throttled."""
    stages = [
        Stage("4 nodes, one of them throttled", 12, partial(measure_fleet, place)),
        Stage("the slow node is found", 0.2, partial(need_slow_node, place)),
    ]
    return Group("fleet", stages)


def measure_fleet(place: Place) -> None:
    with slurm_cluster(nodes=4) as cluster:
        environment = os.environ | cluster.environment
        # One node at a time, because all are this machine.
        options = ["--slurm", "--each-node", "--jobs", "1"]
        with slowed(partial(workers_on, SLOW_NODE)):
            place.sweep(FLEET, *options, environment=environment)


def need_slow_node(place: Place) -> None:
    """Raise StageError unless `perfkit fleet` calls the throttled node slow, and no other."""
    perfkit("fleet", place.outputs, *FLEET_OPTIONS, statuses=ANY_VERDICT)
    slow = (place.folder / "slow-nodes.txt").read_text().split()
    if slow != [SLOW_NODE] and not place.is_trial:
        raise StageError(f"called slow: {slow or 'none'}; throttled was {SLOW_NODE}")


# Audits of logs.

TRAINING = ["examples/huggingface.py", "--disable_tqdm", "False"]
RUNS: dict[str, list[str]] = {"train": [], "other": ["--per_device_train_batch_size", "16"]}
"""Name of a log -> further arguments of the training."""
SHORT_RUN = ["--max_steps", "12", "--logging_steps", "4"]
"""Arguments of a trial."""
STATED = {"batch_size": 8, "devices": 1, "sequence_length": 128}
"""What the log of the training does not tell."""


def audits(place: Place) -> Group:
    """A log made here, with a claim that it reproduces and one that it does not."""
    stages = [
        Stage("two trainings of Hugging Face's", 1.5, partial(train, place)),
        Stage("claims about a log", 0.3, partial(audit_log, place)),
    ]
    return Group("audits", stages)


def train(place: Place) -> None:
    """Run the training twice, with its own batch size and with another one."""
    for run, arguments in RUNS.items():
        words = [*TRAINING, *arguments]
        if place.is_trial:
            words += SHORT_RUN
        file = log_file(place, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        print(f"$ python {' '.join(words)} > {file.relative_to(ROOT)}", flush=True)
        with file.open("wb") as output:
            subprocess.run(
                [sys.executable, *words],
                cwd=ROOT,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
            )


def log_file(place: Place, run: str) -> Path:
    return place.folder / "logs" / f"huggingface-{run}.log"


def audit_log(place: Place) -> None:
    """Audit the log with the number that it prints, and with that of the other run."""
    file = str(log_file(place, "train").relative_to(ROOT))
    for run, label, status in (("train", "reproduced", 0), ("other", "not-reproduced", 1)):
        claim = printed_throughput(place, run)
        options = ["--claim", claim, *as_options(STATED), "--label", f"huggingface-{label}"]
        perfkit("audit", file, *options, "--outputs", place.outputs, statuses=[status])


def printed_throughput(place: Place, run: str) -> str:
    """Return the number that a run printed at its end, with its unit."""
    text = log_file(place, run).read_text()
    (number,) = re.findall(r"'train_samples_per_second': '?([\d.]+)", text)
    return f"{number} samples/s"


# All groups.


def pages(place: Place) -> Group:
    """outputs/examples, replaced by what has been measured."""
    target = "outputs/examples"
    if place.is_trial:
        target = f"{place.outputs}/examples"
    replace = partial(example_pages.replace, place.outputs, target)
    return Group("pages", [Stage(f"{target}, replaced", 2, replace)])


GROUPS: list[Callable[[Place], Group]] = [
    *[model.group for model in MODELS],
    script,
    command,
    diagnosis,
    profile,
    history,
    fleet,
    audits,
    pages,
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="GROUP", help="default: all")
    parser.add_argument("--list", action="store_true", help="measure nothing")
    parser.add_argument("--trial", action="store_true")
    arguments = parser.parse_args()
    outputs = "outputs/trial" if arguments.trial else "outputs"
    place = Place(outputs, arguments.trial)
    groups = {group.name: group for group in [make(place) for make in GROUPS]}
    if unknown := {*arguments.names} - {*groups}:
        parser.error(f"no such group: {', '.join(unknown)}; there are: {', '.join(groups)}")
    wanted = [groups[name] for name in arguments.names or groups]
    file = place.folder / RECORD
    if arguments.list:
        show(wanted, Record.read(file) or Record(""))
        return
    record = begin(place, file)
    left = record.minutes_left(wanted)
    print(f"{len(wanted)} groups, about {left:.0f} min on 2 idle cores")
    try:
        run_stages(wanted, record, file)
    except StageError as error:
        sys.exit(f"{error}\nAfter a remedy, the same command goes on.")
    except KeyboardInterrupt:
        sys.exit("Interrupted; the same command goes on.")


def show(groups: Sequence[Group], record: Record) -> None:
    """Print each group's expected minutes, and the minutes of its finished stages."""
    for group in groups:
        print(f"{group.name}: about {group.minutes:g} min")
        for stage in group.stages:
            took = record.minutes.get(group.key(stage))
            state = "" if took is None else f", took {took:g} min"
            print(f"  {stage.title}: about {stage.minutes:g} min{state}")
    print(f"total: about {sum(group.minutes for group in groups):.0f} min on 2 idle cores")


def begin(place: Place, file: Path) -> Record:
    """Return the record of what has been measured, a new one at first. Exits if something is
    missing, if the checkout has changes, or if the folder has results of another commit."""
    commit = git("rev-parse", "HEAD")
    record = Record.read(file)
    if not place.is_trial:
        if changes := git("status", "--porcelain"):
            sys.exit(f"Every measurement names its commit; commit or remove first:\n{changes}")
        if record is None:
            need_empty(place.folder)
        elif record.commit != commit:
            sys.exit(
                f"{place.outputs}/ has measurements of commit {record.commit[:12]}, and this "
                f"is {commit[:12]}: check that one out to go on, or move them away"
            )
    if not (ROOT / MXNET).exists():
        sys.exit(f"{MXNET} is missing: make peers")
    if reason := slurm_missing():
        sys.exit(f"{reason}: apt-get install slurm-wlm munge")
    if not (ROOT / "data" / "samples" / "train_list.txt").exists():
        perfkit("samples")
    return record or Record(commit)


def need_empty(outputs: Path) -> None:
    """Exit if the folder has other results, which would be taken for examples."""
    expected = {"examples", "trial"}
    others = [path.name for path in outputs.iterdir() if path.name not in expected]
    if others:
        sys.exit(f"outputs/ has other results; move them away first: {', '.join(others)}")


def git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
