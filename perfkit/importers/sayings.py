"""How logs tell of their configuration: launchers, command lines, the parameters that suites
print, and the names of files."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Value = int | str | None
PRECISIONS = {b"fp32": "fp32", b"float32": "fp32", b"amp": "amp", b"pure_fp16": "pure_fp16"}
PRECISIONS |= {b"bf16": "bf16", b"fp16": "amp", b"O1": "amp", b"O2": "pure_fp16"}
PRECISIONS |= {b"float16": "pure_fp16"}
"""fp16 is what the scripts of NVIDIA's BERT call automatic mixed precision; a model whose dtype
is float16, and Paddle's O2, are pure_fp16."""
MODELS = (
    (re.compile(rb"resnet_?50|resnetv15  num_layers : 50|\brn?50", re.I), "resnet50"),
    (re.compile(rb"vgg_?16", re.I), "vgg16"),
    (re.compile(rb"(?<![a-z])bert(?!.?large)", re.I), "bert"),
)


def _count(text: bytes) -> int:
    return len([part for part in text.split(b",") if part.strip()])


def _model(text: bytes) -> Value:
    return next((name for pattern, name in MODELS if pattern.search(text)), None)


def _amp(text: bytes) -> str:
    return "amp" if text in (b"True", b"1") else "fp32"


@dataclass(frozen=True)
class Saying:
    """A way in which logs tell a fact; `key` is in every place where `pattern` matches."""

    fact: str
    key: bytes
    pattern: re.Pattern[bytes]
    value: Callable[[bytes], Value] = int


def _say(
    fact: str, key: bytes, pattern: bytes, value: Callable[[bytes], Value] = int
) -> Saying:
    return Saying(fact, key, re.compile(pattern), value)


def _to(text: bytes) -> bytes:
    """Lines of a loader's configuration up to `text` at the end of one."""
    line = rb"(?![^\n]{0,99} (?:DataLoader : |" + text + rb"))[^\n]{0,400}\n"
    return rb"(?:" + line + rb"){0,60}+[^\n]{0,99} " + text


LAUNCHERS = (
    _say(
        "devices",
        b"LAUNCH INFO",
        rb"LAUNCH INFO [-:, \d]{1,30} devices: ([\d,]{1,999})\s",
        _count,
    ),
    _say("nodes", b"LAUNCH INFO", rb"LAUNCH INFO [-:, \d]{1,30} nnodes: (\d{1,6})\s"),
    _say("devices", b"Run Pod: ", rb"Run Pod: \w{1,40}, replicas (\d{1,6}),"),
    _say("devices", b"Local start ", rb"Local start (\d{1,6}) processes"),
    _say("ranks", b"PADDLE_TRAINERS_NUM", rb"PADDLE_TRAINERS_NUM {1,60}(\d{1,6})"),
    _say(
        "devices",
        b" --gpus",
        rb"(?:distributed\.launch|fleetrun)[^\n]{0,400}? --gpus[= ]([\d,]{1,999})(?=[ \n'\"])",
        _count,
    ),
    _say("devices", b"--nproc", rb"--nproc[_-]per[_-]node[= ](\d{1,6})\b"),
    _say("nodes", b"--nnodes", rb"--nnodes[= ](\d{1,6})(?=[ \n])"),
)
NVIDIA = (
    _say("ranks", b"world_size : ", rb"world_size : (\d{1,6})\b"),
    _say("ranks", b"Num GPUs ", rb"Num GPUs (\d{1,6})\b"),
    _say("devices", b"+ num_gpus=", rb"\+ num_gpus=(\d{1,6})\b"),
    _say("devices", b"gpus : [", rb"\bgpus : \[([\d, ]{1,999})\]", _count),
    _say("batch_size", b"Per-GPU Batch Size ", rb"Per-GPU Batch Size (\d{1,9})\b"),
    _say("batch_size", b"batch_size_per_gpu", rb"batch_size_per_gpu : (\d{1,9})\b"),
    _say("batch_size", b"+ batch_size=", rb"\+ batch_size=(\d{1,9})\b"),
    _say(
        "batch_size",
        b"PARAMETER ",
        rb"PARAMETER (?:data : |arch : \w{1,40}  mode : )[^\n]{0,600}? batch_size : (\d{1,9}) ",
    ),
    _say(
        "global_batch_size",
        b"kv_store : ",
        rb"kv_store : [^\n]{0,200}? batch_size : (\d{1,9})\b",
    ),
    _say(
        "accumulate",
        b"gradient_accumulation_steps=",
        rb"gradient_accumulation_steps=(\d{1,6})\b",
    ),
    _say(
        "accumulate",
        b"num_accumulation_steps",
        rb"num_accumulation_steps(?:_phase1=|: )(\d{1,6})\b",
    ),
    _say("precision", b"+ precision=", rb"\+ precision=(fp32|fp16)\b", PRECISIONS.get),
    _say("precision", b" fp16=", rb"Namespace\([^\n]{0,999}? fp16=(True|False)\b", _amp),
    _say("precision", b" amp : ", rb"(?<!  dtype : float16 ) amp : (True|False)\b", _amp),
    _say("precision", b"dtype : float", rb"\bdtype : (float16)\b", PRECISIONS.get),
    _say("precision", b" loss_scale", rb" (loss_scaler?) : \d", lambda text: "amp"),
    _say("precision", b'"loss_scale', rb"\"(loss_scaler?)\": ?\d", lambda text: "amp"),
    _say("input", b"data_backend : ", rb"data_backend : (dali)-", lambda text: "dali"),
    _say("model", b"arch : ", rb"\barch : (resnetv15  num_layers : \d\d|\w{1,40})", _model),
)
PADDLE = (
    _say("batch_size", b"sampler.batch_size=", rb"Train\.sampler\.batch_size=(\d{1,9})\b"),
    _say(
        "batch_size",
        b"DataLoader : ",
        rb"DataLoader : \n"
        + _to(b"Train : \n")
        + _to(b"sampler : \n")
        + _to(b"batch_size : ")
        + rb"(\d{1,9})\b",
    ),
    _say("batch_size", b" batch_size=", rb"Namespace\([^\n]{0,99}? batch_size=(\d{1,9})\b"),
    _say("batch_size", b"avg_samples: ", rb"avg_samples: (\d{1,9})\.0{1,9},"),
    _say("accumulate", b"gradient_merge_steps", rb"gradient_merge_steps[= ](\d{1,6})\b"),
    _say(
        "precision", b"use_pure_fp16=", rb"use_amp=(True|False|1|0), use_pure_fp16=False", _amp
    ),
    _say("precision", b"use_pure_fp16=True", rb"use_(pure_fp16)=True", PRECISIONS.get),
    _say(
        "precision",
        b"level : O",
        rb"ppcls INFO: AMP : \n(?:[^\n]{0,200}\n){0,9}?[^\n]{0,99} level : (O[12])\b",
        PRECISIONS.get,
    ),
    _say("precision", b"_amp_O", rb"-c', '[\w./-]{1,200}_amp_(O[12])", PRECISIONS.get),
    _say("input", b"use_dali : ", rb"use_dali : (True)\b", lambda text: "dali"),
    _say(
        "model",
        b"Arch : ",
        rb"Arch : \n(?:[^\n]{0,400}\n){0,4}?[^\n]{0,99} name : (\w{1,40})",
        _model,
    ),
    _say("model", b"model_name_or_path=", rb"model_name_or_path='([\w./-]{1,99})'", _model),
)
ONEFLOW = (
    _say("model", b"model = ", rb"\nmodel = (\w{1,40})", _model),
    _say("batch_size", b"batch_size_per_device = ", rb"batch_size_per_device = (\d{1,9})\b"),
    _say("devices", b"gpu_num_per_node = ", rb"gpu_num_per_node = (\d{1,6})\b"),
    _say("nodes", b"num_nodes = ", rb"num_nodes = (\d{1,6})\b"),
)
TF_CNN = (
    _say("model", b"Model: ", rb"\nModel: {1,20}(\w{1,40})", _model),
    _say("global_batch_size", b" global\n", rb"\nBatch size: {1,20}(\d{1,9}) global\n"),
    _say("batch_size", b" per device", rb" global\n {1,20}(\d{1,9})(?:\.0)? per device"),
)
MLPERF = (
    _say(
        "global_batch_size",
        b"global_batch_size",
        rb"\"global_batch_size\", ?\"value\": ?(\d{1,9})\b",
    ),
    _say(
        "accumulate",
        b"gradient_acc",
        rb"\"gradient_accumulation_steps\", ?\"value\": ?(\d{1,6})\b",
    ),
    _say(
        "model",
        b"submission_benchmark",
        rb"\"submission_benchmark\", ?\"value\": ?\"(\w{1,40})\"",
        _model,
    ),
)
OWN = tuple(
    _say(
        fact,
        b"PARAMETER measurement",
        rb"(?m)^PARAMETER measurement : [^\n]{1,4000}? %s : (\w{1,40}) " % fact.encode(),
        kind,
    )
    for kind, facts in (
        (
            int,
            (
                *("batch_size", "accumulate", "nodes", "devices"),
                *("warmup_steps", "measured_steps"),
            ),
        ),
        (bytes.decode, ("model", "framework", "precision", "input", "device")),
    )
    for fact in facts
)
"""What perfkit.exporters.dllogger writes."""
LINES = (*LAUNCHERS, *NVIDIA, *PADDLE, *ONEFLOW, *TF_CNN, *MLPERF, *OWN)
"""The sayings of lines: those of launchers, and of each family of formats."""

NAME = (
    _say("nodes", b"", rb"N(\d{1,5})C\d{1,5}(?![a-zA-Z0-9])"),
    _say("devices", b"", rb"N\d{1,5}C(\d{1,5})(?![a-zA-Z0-9])"),
    _say("nodes", b"", rb"^(\d{1,5})n\d{1,5}g/"),
    _say("devices", b"", rb"^\d{1,5}n(\d{1,5})g/"),
    _say("ranks", b"", rb"gpu(\d{1,5})(?=[_.])"),
    _say("batch_size", b"", rb"_bs?(\d{1,9})(?=[_.])"),
    _say("precision", b"", rb"_(pure_fp16|amp|fp32|bf16)(?=[_.])", PRECISIONS.get),
    _say("model", b"", rb"([^/]{1,255})$", _model),
)
"""The sayings of a file's name, after that of its folder if it is laid out as DLPerf's."""
