"""NVIDIA's DLLogger, as text (`DLL 2023-08-04 05:46:58.8 - Epoch: 0 Iteration: 2  …`) and in
its file (`DLLL {"datetime": …, "step": [0, 2], "data": {…}}`), with the figures of each of the
training suites that write by it. Their rates are those of all devices."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perfkit.importers.form import Form, told
from perfkit.importers.lines import Chunk
from perfkit.importers.log import Meaning, SincePrint, Step, Told, Unit
from perfkit.importers.patterns import MOMENT, REAL, expression
from perfkit.importers.sayings import LAUNCHERS, NVIDIA, OWN

SUITES = "NVIDIA/DeepLearningExamples, "
IN_EPOCH = (rb"Epoch: <epoch> Iteration: <step>", rb"\[<epoch>, ?<step>\]")


@dataclass(frozen=True)
class Suite:
    """One training script: how it writes a step, as text and in the file, and the columns of
    RAW with the keys of their figures, in the order in which it writes them."""

    name: str
    framework: str
    unit: str
    meaning: Meaning
    keys: tuple[tuple[bytes, bytes], ...]
    step: tuple[bytes, bytes] = IN_EPOCH
    gap: int = 300
    """How many bytes of other figures may stand before one of these."""

    def text(self) -> re.Pattern[bytes]:
        gap = rb"[^\n]{0,%d}?\b" % self.gap
        figures = b"".join(gap + key + b" : <" + name + b">(?= )" for name, key in self.keys)
        return expression(rb"DLL <at> - " + self.step[0] + b" " + figures)

    def file(self) -> re.Pattern[bytes]:
        gap = rb"[^\n]{0,%d}?\"" % self.gap
        figures = b"".join(
            gap + key + b'": ?<' + name + b">(?=[,}])" for name, key in self.keys
        )
        return expression(
            rb"DLLL \{[^\n]{0,120}?\"datetime\": ?\"<at>\"[^\n]{0,120}?\"step\": ?"
            + self.step[1]
            + rb", ?\"data\": ?\{"
            + figures
        )


ALL = (
    Suite(
        "PaddlePaddle ResNet-50",
        "paddle",
        "images/s",
        Meaning(
            rate_of="all",
            covers=Step(),
            counts_from=1,
            reader="in",
            source=SUITES + "PaddlePaddle/Classification/RN50v1.5/program.py: prints the "
            "last batch alone (val), ips = batch_size * num_trainers / batch_time; idx is from "
            "1 on",
        ),
        (
            (b"loss", rb"train\.loss"),
            (b"accuracy", rb"train\.top1"),
            (b"accuracy2", rb"train\.top5"),
            (b"reader", rb"train\.data_time"),
            (b"seconds", rb"train\.batch_time"),
            (b"rate", rb"train\.ips"),
        ),
        gap=60,
    ),
    Suite(
        "PyTorch ConvNets",
        "torch",
        "images/s",
        Meaning(
            rate_of="all",
            covers=SincePrint(),
            counts_from=1,
            reader="in",
            source=SUITES + "PyTorch/Classification/ConvNets/image_classification/logger.py: a "
            "print is the arithmetic mean of the rates of the steps since the last one; "
            "iterations count from 1; total_ips has the reader in it, compute_ips has not",
            mean_of="rates",
        ),
        ((b"loss", rb"train\.loss"), (b"rate", rb"train\.total_ips")),
    ),
    Suite(
        "TensorFlow ConvNets",
        "tensorflow",
        "images/s",
        Meaning(
            rate_of="all",
            covers=Step(),
            counts_from=0,
            reader="in",
            source=SUITES
            + "TensorFlow/Classification/ConvNets/utils/hooks/benchmark_hooks.py: "
            "current_step counts from 0, ips = global_batch_size / time of this session.run; "
            "what happens between two of them is in none",
        ),
        ((b"rate", rb"total_ips"),),
        (rb"\(<epoch>, <step>\)", IN_EPOCH[1]),
        gap=0,
    ),
    Suite(
        "MXNet ResNet-50",
        "mxnet",
        "images/s",
        Meaning(
            rate_of="all",
            covers=SincePrint(),
            counts_from=0,
            reader="in",
            source=SUITES + "MxNet/Classification/RN50v1.5/fit.py: prints every disp_batches "
            "the samples since the last print by the time since then; batches count from 0",
        ),
        ((b"loss", rb"train\.loss"), (b"rate", rb"train\.ips")),
        gap=3,
    ),
    Suite(
        "TensorFlow BERT",
        "tensorflow",
        "sequences/s",
        Meaning(
            rate_of="all",
            covers=SincePrint(),
            counts_from=1,
            reader="in",
            source=SUITES + "TensorFlow/LanguageModeling/BERT/run_pretraining.py: global batch "
            "by the mean time in session.run of the updates since the last print; an update "
            "that overflowed is skipped, and its iteration is printed again",
            repeats=True,
        ),
        ((b"rate", rb"throughput_train"), (b"loss", rb"total_loss")),
        (rb"Iteration: <step>", rb"\[?<step>\]?"),
    ),
    Suite(
        "PyTorch BERT",
        "torch",
        "sequences/s",
        Meaning(
            rate_of="all",
            covers=SincePrint(),
            counts_from=1,
            reader="in",
            source=SUITES + "PyTorch/LanguageModeling/BERT/run_pretraining.py: a print after "
            "each update, with its clock only; an update that overflowed is skipped, and its "
            "iteration is printed again",
            repeats=True,
        ),
        ((b"loss", rb"(?:average|final)_loss"),),
        (
            rb"Training Epoch: [0-9]{1,9} Training Iteration: <step>",
            rb"\[[0-9]{1,9}, ?<step>(?:,[^\]\n]{0,20})?\]",
        ),
        gap=3,
    ),
    Suite(
        "perfkit",
        "",
        "",
        Meaning(
            rate_of="all",
            covers=Step(),
            counts_from=1,
            reader="in",
            source="perfkit/exporters/dllogger.py",
        ),
        (
            (b"seconds", rb"train\.step_time"),
            (b"reader", rb"train\.data_time"),
            (b"rate", rb"train\.total_ips"),
        ),
        gap=3,
    ),
)

RECORD = re.compile(
    rb"DLL " + MOMENT + rb" - (?P<where>Summary:|Epoch: \d{1,9}|\(\)|) "
    rb"(?!PARAMETER|Iteration:) ?(?P<figures>[^\n]{1,4000})"
)
FIGURE = re.compile(rb"([\w.]{1,60}) : ([-+.\w]{1,32})(?= )")
AVERAGE = re.compile(
    rb"INFO:tensorflow:(Throughput Average \(sentences/sec\) with overhead) = (" + REAL + rb")"
)
TABLE = re.compile(
    rb"\n(train\.ips)\n {1,20}\| {1,11}\d{1,9} {1,11}\|\n-{3,200}\n"
    rb" {1,11}\d{1,9} {1,11}\| {1,11}(" + REAL + rb") {1,11}\|"
)
FILE_RECORD = re.compile(rb"DLLL (\{[^\n]{1,20000}\})")


def _unit(name: str) -> Unit:
    if re.search("ips$|throughput|per_second", name):
        return "samples/s"
    return "s" if name.endswith("time") else ""


def _summary(where: str, name: str, value: str, line: int) -> Iterator[Told]:
    """A figure of training; what validation gave is none."""
    figure = told(f"{where} {name}".strip(), value, _unit(name), line)
    if not (name.startswith("val.") or name.endswith("_val") or figure.value != figure.value):
        yield figure


def _text_figures(rest: Chunk) -> Iterator[Told]:
    for record in RECORD.finditer(rest.text):
        where, line = record["where"].decode().strip("():"), rest.line_at(record.start())
        for name, value in FIGURE.findall(record["figures"]):
            yield from _summary(where, name.decode(), value.decode(), line)
    for where, pattern in (("", AVERAGE), ("closing table ", TABLE)):
        for match in pattern.finditer(rest.text):
            line = rest.line_at(match.start(2))
            yield told(where + match[1].decode(), match[2].decode(), "samples/s", line)


def _records(rest: Chunk) -> Iterator[tuple[int, object, dict[str, object]]]:
    """Line, step and data of each record of the file form."""
    for match in FILE_RECORD.finditer(rest.text):
        try:
            record = json.loads(match[1])
        except (ValueError, RecursionError):
            continue
        if isinstance(record.get("data"), dict):
            yield rest.line_at(match.start()), record.get("step"), record["data"]


def _file_figures(rest: Chunk) -> Iterator[Told]:
    for line, step, data in _records(rest):
        if step in ([], "", None) or (isinstance(step, list) and len(step) == 1):
            where = f"Epoch: {step[0]}" if step and isinstance(step, list) else ""
            for name, value in data.items():
                if isinstance(value, int | float):
                    yield from _summary(where, name, repr(value), line)


def _parameters(rest: Chunk) -> Iterator[Chunk]:
    """The parameters of the file form as the text form has them."""
    yield rest
    for line, step, data in _records(rest):
        if step == "PARAMETER":
            text = "PARAMETER " + " ".join(f"{name} : {value} " for name, value in data.items())
            yield Chunk(text.encode("utf-8", "replace"), line)


FORMS = tuple(
    form
    for suite in ALL
    for form in (
        Form(
            f"NVIDIA DLLogger, {suite.name}",
            suite.meaning,
            b"DLL ",
            suite.text(),
            suite.framework,
            suite.unit,
            figures=_text_figures,
            sayings=LAUNCHERS + NVIDIA + OWN,
        ),
        Form(
            f"NVIDIA DLLogger's file, {suite.name}",
            suite.meaning,
            b"DLLL {",
            suite.file(),
            suite.framework,
            suite.unit,
            figures=_file_figures,
            sayings=LAUNCHERS + NVIDIA + OWN,
            said_in=_parameters,
        ),
    )
)
