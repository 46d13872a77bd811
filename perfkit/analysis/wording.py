"""Facts and parameters of measurements in words, in the reader's language."""

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from gettext import NullTranslations
from typing import Any

from perfkit.measuring.format import counted, one_line, plain, shortened
from perfkit.measuring.statements import ENGLISH, N_
from perfkit.training.models import find_model, model_named

SPELLINGS = {
    word.lower(): word
    for word in ("CPU", "GPU", "GPUs", "OS", "CUDA", "cuDNN", "NCCL", "DALI", "NumPy")
}
USUAL = (None, "dynamic", "none", "NCHW", "momentum", "adamw")
"""Values of execution, strategy, layout and optimizer that need not be named."""


def protocol_words(row: Mapping[str, Any], language: NullTranslations = ENGLISH) -> str:
    """Return the protocol of a row of `perfkit.load`: "published (20 + 100 steps)"."""
    words = N_("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)")
    if row["measured_seconds"]:
        words = N_(
            "%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps or more, for "
            "%(measured_seconds)g s)"
        )
    return language.gettext(words) % row


def fact_name(name: str, language: NullTranslations = ENGLISH) -> str:
    """Return the name of a fact of the environment: "driver CUDA" for `driver_cuda`."""
    words = [SPELLINGS.get(word, word) for word in name.split("_")]
    return language.gettext(" ".join(words))


def column_value(column: str, value: Any, language: NullTranslations = ENGLISH) -> str:
    """Return a value of a column of `perfkit.load`, with the column's name where the value
    alone is unclear."""
    if column in ("environment.gpus", "environment.cpu"):
        return counted(device.split(",")[0] for device in str(value).split("; "))
    if column == "arguments":
        return arguments_text(value) or language.gettext(N_("no arguments"))
    if column == "node":
        return language.gettext(N_("node %(name)s")) % {"name": shortened(value)}
    if column == "script_sha256":
        return f"script {str(value)[:8]}"
    if column == "python":
        return f"python {shortened(str(value).removesuffix('/bin/python'))}"
    kind, _dot, name = column.rpartition(".")
    heading = column.replace(".", " ")
    if kind == "environment":
        heading = fact_name(name, language)
    width = 12 if name.endswith("commit") else 40
    return f"{heading} {shortened(value, width)}"


def device_name(row: Mapping[str, Any], language: NullTranslations = ENGLISH) -> str:
    """Return the GPU or CPU in a row of `perfkit.load`; for other devices, their type."""
    device = row["device"]
    if device == "gpu":
        gpus = row.get("environment.gpus") or language.gettext(N_("unknown GPU"))
        names = ", ".join(gpus) if isinstance(gpus, list) else gpus
        return re.split("[,;]", one_line(names))[0]
    if device == "cpu":
        return re.split(r",| \(", one_line(row.get("environment.cpu") or "CPU"))[0]
    return str(device).upper()


def size_text(key: str, count: int, language: NullTranslations = ENGLISH) -> str:
    """Return the size of images or the length of sequences with its unit."""
    if key == "image_size":
        return f"{count} px"
    return language.gettext(N_("%(count)d tokens")) % {"count": count}


def work_title(name: str, size: str | None = None) -> str:
    """Return the short name of a model, and its size, in a row of `perfkit.load`; the name of a
    script's file as it is, on one line."""
    if find_model(name) is None:
        return plain(name)
    return model_named(name, size).short_name


def long_title(name: str, size: str | None = None, language: NullTranslations = ENGLISH) -> str:
    """Return the whole name of a model, or the name of a script's file as it is."""
    if find_model(name) is None:
        return plain(name)
    model = model_named(name, size)
    if model.sample == "sequence":
        words = language.gettext(N_("%(model)s pre-training"))
        return words % {"model": model.short_name}
    return model.name


def arguments_text(arguments: str, longest: int = 60) -> str:
    """Return the arguments of a script, untrusted text, on one short line; empty without
    arguments."""
    return shortened(plain(arguments), longest) if arguments else ""


def script_options(arguments: str) -> list[str]:
    """Return the arguments of a script as options, each with its values: "--lr 0.1"."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        # Foreign text without its closing quotation mark.
        words = arguments.split()
    options: list[str] = []
    for word in words:
        is_option = re.match(r"--?[^\d\W]", word)
        if is_option or not options:
            options.append(shlex.quote(word))
        else:
            options[-1] += f" {shlex.quote(word)}"
    return options


def own_options(arguments: str, others: Iterable[str]) -> list[str]:
    """Return the options of a script that not all `others` have."""
    options_of_others = [script_options(other) for other in others]
    own = []
    for option in script_options(arguments):
        if not all(option in options for options in options_of_others):
            own.append(option)
    return own


def lacking_options(arguments: str, others: Iterable[str]) -> list[str]:
    """Return the options that a script lacks and some of the `others` have."""
    options = script_options(arguments)
    lacking: dict[str, None] = {}
    for other in others:
        lacking |= dict.fromkeys(script_options(other))
    return [option for option in lacking if option not in options]


def telling_apart(values: Iterable[str], longest: int = 40) -> dict[str, str]:
    """Return value -> text of at most `longest` characters, which different values do not
    share: their beginnings or, if these are alike, the words in which they differ, their ends,
    or their digests."""
    different = [*dict.fromkeys(filter(None, values))]
    beginnings = [shortened(value, longest) for value in different]
    ends = [f"…{value[1 - longest :]}" for value in different]
    digests = [hashlib.sha256(value.encode()).hexdigest()[:8] for value in different]
    for texts in (beginnings, _differing_words(different), ends):
        are_different = all(texts) and len({*texts}) == len(texts)
        if are_different and all(len(text) <= longest for text in texts):
            return {"": ""} | dict(zip(different, texts, strict=True))
    return {"": ""} | dict(zip(different, digests, strict=True))


def _differing_words(values: Sequence[str]) -> list[str]:
    """Return of each text only the words that some of the others lack, an option together with
    its values."""
    options = [script_options(value) for value in values]
    shared = {*options[0]}.intersection(*options) if options else set()
    return [" ".join(word for word in words if word not in shared) for words in options]


def variant_arguments(
    arguments: str, every: Sequence[str], language: NullTranslations = ENGLISH
) -> str:
    """Return the arguments that tell a variant of a script from `every` variant."""
    if not arguments:
        return language.gettext(N_("no arguments"))
    own = own_options(arguments, every)
    if own:
        return arguments_text(" ".join(own))
    lacking = lacking_options(arguments, every)
    if lacking:
        words = language.gettext(N_("without %(options)s"))
        return words % {"options": arguments_text(", ".join(lacking))}
    return arguments_text(arguments)


def traits(row: Mapping[str, Any], language: NullTranslations = ENGLISH) -> dict[str, str]:
    """Return column -> text of the parameters in a row of `perfkit.load` that differ from the
    default, apart from model, framework, precision, batch size, topology and input; of a
    script, its arguments."""
    if find_model(row["model"]) is None:
        arguments = arguments_text(row.get("arguments") or "")
        return {"arguments": arguments} if arguments else {}
    texts = {}
    for name in ("execution", "strategy", "layout", "optimizer"):
        if row[name] not in USUAL:
            texts[name] = str(row[name])
    for name in ("sharding", "recompute"):
        value = row.get(name) or "none"
        if value != "none":
            texts[name] = f"{name} {value}"
    if row["tf32"]:
        texts["tf32"] = "TF32"
    if row["accumulate"] > 1:
        accumulate = language.gettext(N_("accumulate %(count)d"))
        texts["accumulate"] = accumulate % {"count": row["accumulate"]}
    model = model_named(row["model"])
    usual_sizes = {
        "image_size": model.default_image_size,
        "sequence_length": model.default_sequence_length,
    }
    for name, usual in usual_sizes.items():
        if row[name] not in (None, usual):
            texts[name] = size_text(name, row[name], language)
    return texts
