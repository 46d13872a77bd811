"""What a log tells of its configuration, by the patterns of facts.toml: launchers, command
lines, parameters that suites print, and the names of files."""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from perfkit.messages import Message

Value = int | str
TEXT_LIMIT = 1_000_000
"""Facts are looked for in so many characters at the beginning of a training, and at its end."""
CONTRADICTIONS = 20
"""How many are noted of one log."""
PRECISIONS = {
    **{"fp32": "fp32", "float32": "fp32", "False": "fp32", "0": "fp32", "bf16": "bf16"},
    **{"amp": "amp", "fp16": "amp", "O1": "amp", "True": "amp", "1": "amp"},
    **{"pure_fp16": "pure_fp16", "O2": "pure_fp16", "float16": "pure_fp16"},
}
"""fp16 is what the scripts of NVIDIA's BERT call automatic mixed precision; a model whose dtype
is float16, and Paddle's O2, are pure_fp16."""
MODELS = (
    (
        re.compile(r"resnet_?50|resnetv15  num_layers : 50|\brn?50|^resnetv15$", re.I),
        "resnet50",
    ),
    (re.compile(r"vgg_?16", re.I), "vgg16"),
    (re.compile(r"(?<![a-z])bert(?!.?large)", re.I), "bert"),
)
MLPERF_MODELS = {"resnet": "resnet50", "bert": "bert-large"}
"""What MLPerf's benchmarks train: its BERT is BERT-large."""
LONG = (
    r"v100s?|[ah](?:100|200|800)|gh200|g?b[23]00|p100|(?:geforce[ _-]?)?(?:rtx|gtx)[ _-]?"
    r"a?\d{4}(?:[ _-]?(?:ti|super))?|\d{4}ti|titan[ _-]?(?:v|xp|rtx)|mi\d{3}[ax]?|gaudi\d?|"
    r"tpu[ _-]?v\d[a-z]?"
)
SHORT = r"[pt]4|k80|a10g?|a16|a30|a40|l4|l40s?|h20"
"""Names of GPUs and other accelerators; in a text the short ones may be anything else."""
GPU_TEXT = re.compile(
    # How any of them begins: else the names are tried at each word, which takes twice as long.
    r"(?<![a-z0-9])(?=[0-9abghklmnprtv])"
    rf"(?:nvidia |tesla )?({LONG}|(?<=nvidia )(?:{SHORT})|(?<=tesla )(?:{SHORT}))"
    r"(?![a-z0-9])",
    re.I,
)
GPU_PATH = re.compile(rf"(?<![a-z0-9])({LONG}|{SHORT})(?![a-z0-9])", re.I)


def _model(text: str) -> str | None:
    return next((name for pattern, name in MODELS if pattern.search(text)), None)


def _count(text: str) -> int:
    return len([part for part in text.split(",") if part.strip()])


def _mode(text: str) -> str:
    return "training" if text.startswith("train") else "inference"


def _constant(value: str, _text: str) -> str:
    return value


def gpu_name(text: str) -> str:
    """The one name of a GPU under all its spellings: `GeForce RTX 2080 Ti` is 2080TI."""
    return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()


class ConfigPattern(NamedTuple):
    """How logs tell a fact: the first group has the value. `word` is in each match."""

    fact: str
    pattern: re.Pattern[str]
    value: Callable[[str], Value | None]
    word: str


KINDS: dict[str, Callable[[str], Value | None]] = {
    "number": int,
    "count": _count,
    "model": _model,
    "mlperf": MLPERF_MODELS.get,
    "precision": PRECISIONS.get,
    "mode": _mode,
    "text": str,
    **{f"={word}": partial(_constant, word) for word in ("dali", "amp", "pure_fp16")},
}
"""How a value is read."""


def _word(pattern: str) -> str:
    """The word with which a pattern begins behind \\b, which hides it from Python's search for
    fixed beginnings: a search takes ten times as long."""
    found = re.match(r"\\b(\w+)\b(?![?*{])", pattern)
    return found[1] if found else ""


def _patterns(where: str) -> tuple[ConfigPattern, ...]:
    """The patterns of facts.toml for the text of logs, or for the names of files, after that of
    the folder if it is laid out as DLPerf's."""
    return tuple(
        ConfigPattern(entry["fact"], re.compile(text), KINDS[entry["kind"]], _word(text))
        for entry in _DATA[where]
        for text in entry["patterns"]
    )


_DATA = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))
NAME = _patterns("name")
TEXT = (
    *_patterns("text"),
    *(
        ConfigPattern(
            fact,
            re.compile(rf"PARAMETER measurement : [^\n]{{1,4000}}? {fact} : (\w{{1,40}}) "),
            KINDS[kind],
            "PARAMETER measurement",
        )
        for fact, kind in _DATA["exported"].items()
    ),
)
RULES = (
    "nodes x devices",
    "ranks / nodes",
    "ranks / devices",
    "optimizer_batch_size / (batch_size x ranks)",
    "global_batch_size / ranks",
    "global_batch_size / (batch_size x accumulate)",
)
"""By which facts follow from others."""


class Sourced(NamedTuple):
    """What the log tells of its configuration, and who says it: a line, its name, its format,
    or a rule by which it follows."""

    value: Value
    by: Message


def by_line(line: int) -> Message:
    return Message("by_line", {"line": line})


class Facts:
    """Gathers the facts of one training, and notes where two of them contradict each other.
    `of_format` are those that follow from the format, unless they are empty."""

    def __init__(self, **of_format: Value) -> None:
        by = Message("by_format", {})
        self.found = {name: Sourced(value, by) for name, value in of_format.items() if value}
        self.notes: list[tuple[int, Message]] = []
        self._noted: set[tuple[str, Value]] = set()

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        """Takes what lines, with their numbers, say."""
        numbers, texts = zip(*lines, strict=True) if lines else ((), ())
        # Patterns look for line ends at both sides.
        text = "\n".join(["", *texts, ""])
        ends = [*accumulate(len(one) + 1 for one in texts)]
        parts = [(0, text[:TEXT_LIMIT])]
        if len(text) > TEXT_LIMIT:
            begin = max(TEXT_LIMIT, len(text) - TEXT_LIMIT)
            parts.append((begin, text[begin:]))

        def line_at(offset: int) -> int:
            return numbers[min(bisect_right(ends, offset - 1), len(numbers) - 1)]

        for fact, pattern, value_of, word in TEXT:
            for begin, part in parts:
                for match in pattern.finditer(part) if word in part else ():
                    value = value_of(match[1])
                    if value is not None and self._is_new(fact, value):
                        self.add(fact, value, by_line(line_at(begin + match.start(1))))
        gpus = {
            gpu_name(match[1]): begin + match.start(1)
            for begin, part in parts
            for match in GPU_TEXT.finditer(part)
        }
        if len(gpus) == 1:
            ((name, offset),) = gpus.items()
            self.add("gpu", name, by_line(line_at(offset)))

    def complete(self, path: Path) -> None:
        """Takes what the file's name says, its folder's if that is laid out as DLPerf's, and
        the GPU that any part of the path names; then what follows from all facts. A name that
        says two things says nothing."""
        folder, name = path.absolute().parent.name, path.name
        if re.fullmatch(r"\d{1,5}n\d{1,5}g", folder):
            name = f"{folder}/{name}"
        for fact, pattern, value_of, _word_of in NAME:
            values = {value_of(match[1]) for match in pattern.finditer(name)} - {None}
            # MLPerf's BERT is another model, whatever its file is called.
            if len(values) == 1 and (fact, fact in self.found) != ("model", True):
                self.add(fact, values.pop(), Message("by_name", {}))  # type: ignore[arg-type]
        gpus = {
            gpu_name(match[1]) for match in GPU_PATH.finditer(str(path).replace("/", " / "))
        }
        if len(gpus) == 1:
            self.add("gpu", gpus.pop(), Message("by_name", {}))
        self.derive()

    def add(self, name: str, value: Value, by: Message) -> None:
        """Takes a fact. The first one stands."""
        known = self.found.setdefault(name, Sourced(value, by))
        if known.value != value and self._is_new(name, value):
            self._noted.add((name, value))
            params = {"name": name, "value": value, "by": by, "other": known.value}
            line = by.params.get("line", 0)
            self.notes.append((line, Message("contradiction", params | {"whom": known.by})))

    def _is_new(self, name: str, value: Value) -> bool:
        known = self.found.get(name)
        if known is None:
            return True
        noted = (name, value) in self._noted or len(self.notes) >= CONTRADICTIONS
        return known.value != value and not noted

    def number(self, name: str) -> int:
        """A fact that is a number above 0; 0 if there is none."""
        value = self.found[name].value if name in self.found else 0
        return value if isinstance(value, int) else 0

    def derive(self) -> None:
        """Adds what follows from others: of nodes, devices and ranks each from the other two;
        the batch of a device from that of all; what is accumulated."""
        number = self.number
        nodes, devices, ranks = number("nodes"), number("devices"), number("ranks")
        images = "unit" in self.found and self.found["unit"].value == "images/s"
        parts = number("batch_size") * (number("accumulate") or images)
        whole = number("global_batch_size")
        if parts and not ranks and whole % parts == 0 and whole:
            ranks = whole // parts
            self._derive("ranks", ranks, "global_batch_size / (batch_size x accumulate)")
        if nodes and devices:
            self._derive("ranks", nodes * devices, "nodes x devices")
        elif ranks and nodes and ranks % nodes == 0:
            self._derive("devices", ranks // nodes, "ranks / nodes")
        elif ranks and devices and ranks % devices == 0:
            self._derive("nodes", ranks // devices, "ranks / devices")
        ranks, batch = number("ranks"), number("micro_batch_size") or number("batch_size")
        whole = number("optimizer_batch_size")
        if whole and ranks * batch and whole % (ranks * batch) == 0:
            how = "optimizer_batch_size / (batch_size x ranks)"
            self._derive("accumulate", whole // (ranks * batch), how)
        whole, parts = number("global_batch_size"), ranks * (number("accumulate") or 1)
        if whole and parts and whole % parts == 0:
            self._derive("batch_size", whole // parts, "global_batch_size / ranks")

    def _derive(self, name: str, value: int, how: str) -> None:
        by = Message("by_rule", {"how": how})
        known = self.found.setdefault(name, Sourced(value, by))
        if known.value != value:
            params = {"how": how, "value": value, "name": name, "other": known.value}
            self.notes.append((0, Message("rule_contradicts", params | {"by": known.by})))
