"""Facts and parameters of measurements, columns of `perfkit.load`, in words in the current
language."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfkit.analysis.comparison.blocks import Block, Setup
from perfkit.analysis.script_arguments import arguments_text, lacking_options, own_options
from perfkit.measuring.format import counted, one_line, plain, shortened
from perfkit.report.text.language import gettext as _
from perfkit.training.models import find_model, model_named

SPELLINGS = {
    word.lower(): word
    for word in ("CPU", "GPU", "GPUs", "OS", "CUDA", "cuDNN", "NCCL", "DALI", "NumPy")
}
USUAL = (None, "dynamic", "none", "NCHW", "momentum", "adamw")
"""Values of execution, strategy, layout and optimizer that need not be named."""


def protocol_words(row: Mapping[str, Any]) -> str:
    """Return the protocol of a row of `perfkit.load`: "published (20 + 100 steps)"."""
    words = _("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)")
    if row["measured_seconds"]:
        words = _(
            "%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps or more, for "
            "%(measured_seconds)g s)"
        )
    return words % row


def fact_name(name: str) -> str:
    """Return the name of a fact of the environment: "driver CUDA" for `driver_cuda`."""
    words = [SPELLINGS.get(word, word) for word in name.split("_")]
    return _(" ".join(words))


def column_value(column: str, value: Any) -> str:
    """Return a value of a column of `perfkit.load`, with the column's name where the value
    alone is unclear."""
    if column in ("environment.gpus", "environment.cpu"):
        return counted(device.split(",")[0] for device in str(value).split("; "))
    if column == "arguments":
        return arguments_text(value) or _("no arguments")
    if column == "node":
        return _("node %(name)s") % {"name": shortened(value)}
    if column in ("script_sha256", "files_sha256"):
        return f"{column.removesuffix('_sha256')} {str(value)[:8]}"
    if column == "python":
        return f"python {shortened(str(value).removesuffix('/bin/python'))}"
    kind, _dot, name = column.rpartition(".")
    heading = column.replace(".", " ")
    if kind == "environment":
        heading = fact_name(name)
    width = 12 if name.endswith("commit") else 40
    return f"{heading} {shortened(value, width)}"


def device_name(row: Mapping[str, Any]) -> str:
    """Return the GPU or CPU in a row of `perfkit.load`; for other devices, their type."""
    device = row["device"]
    if device == "gpu":
        gpus = row.get("environment.gpus") or _("unknown GPU")
        names = ", ".join(gpus) if isinstance(gpus, list) else gpus
        return re.split("[,;]", one_line(names))[0]
    if device == "cpu":
        return re.split(r",| \(", one_line(row.get("environment.cpu") or "CPU"))[0]
    return str(device).upper()


def size_text(key: str, count: int) -> str:
    """Return the size of images or the length of sequences with its unit."""
    if key == "image_size":
        return f"{count} px"
    return _("%(count)d tokens") % {"count": count}


def work_title(name: str, size: str | None = None) -> str:
    """Return the short name of a model, and its size, in a row of `perfkit.load`; the name of a
    script's file as it is, on one line."""
    if find_model(name) is None:
        return plain(name)
    return model_named(name, size).short_name


def long_title(name: str, size: str | None = None) -> str:
    """Return the whole name of a model, or the name of a script's file as it is."""
    if find_model(name) is None:
        return plain(name)
    model = model_named(name, size)
    if model.sample == "sequence":
        words = _("%(model)s pre-training")
        return words % {"model": model.short_name}
    return model.name


def variant_arguments(arguments: str, every: Sequence[str]) -> str:
    """Return the arguments that tell a variant of a script from `every` variant."""
    if not arguments:
        return _("no arguments")
    own = own_options(arguments, every)
    if own:
        return arguments_text(" ".join(own))
    lacking = lacking_options(arguments, every)
    if lacking:
        words = _("without %(options)s")
        return words % {"options": arguments_text(", ".join(lacking))}
    return arguments_text(arguments)


def traits(row: Mapping[str, Any]) -> dict[str, str]:
    """Return column -> text of the parameters in a row of `perfkit.load` that differ from the
    default, apart from model, framework, precision, batch size, topology and input; of a
    script, its arguments."""
    if find_model(row["model"]) is None:
        arguments = arguments_text(row.get("arguments") or row.get("flags") or "")
        return {"arguments": arguments} if arguments else {}
    texts = {}
    for name in ("execution", "strategy", "layout", "optimizer"):
        if row[name] not in USUAL:
            texts[name] = str(row[name])
    for name in ("sharding", "recompute"):
        value = row.get(name) or "none"
        if value != "none":
            texts[name] = f"{name} {value}"
    if row.get("effective.tf32") or row.get("tf32"):
        texts["tf32"] = "TF32"
    if row["accumulate"] > 1:
        accumulate = _("accumulate %(count)d")
        texts["accumulate"] = accumulate % {"count": row["accumulate"]}
    model = model_named(row["model"])
    usual_sizes = {
        "image_size": model.default_image_size,
        "sequence_length": model.default_sequence_length,
    }
    for name, usual in usual_sizes.items():
        if row[name] not in (None, usual):
            texts[name] = size_text(name, row[name])
    return texts


def setup_words(setup: Setup) -> str:
    """Return in words how a work differs from others of its model."""
    words = []
    for column, value in setup:
        if column in ("image_size", "sequence_length"):
            words.append(size_text(column, int(value)))
        else:
            words.append(column_value(column, value))
    return " · ".join(words)


def row_title(row: Mapping[str, Any], keys: Iterable[str], between: str = " · ") -> str:
    """Return a row's values of these keys in one line."""
    texts = []
    for key in keys:
        text = row[key]
        if key == "model":
            text = work_title(row["model"], row.get("model_size"))
        elif key == "model_size":
            # The name has it.
            continue
        elif key == "batch_size" and text:
            text = _("batch %(size)s") % {"size": row["batch_size"]}
        elif key == "setup":
            text = setup_words(row["setup"])
        if text:
            texts.append(text)
    return between.join(texts)


def hardware_words(block: Block) -> str:
    """Return the device of a block of measurements."""
    device_type, column, names = block.device
    if not names:
        return device_type.upper()
    return column_value(column, names)


def fact_words(block: Block) -> list[str]:
    """Return the other facts in which the blocks of a page differ."""
    return [column_value(column, values) for column, values in block.other_facts]


def caption(block: Block) -> str:
    """Return on what and how the measurements of a block were made."""
    return " · ".join([hardware_words(block), *block.versions, protocol_words(block.protocol)])
