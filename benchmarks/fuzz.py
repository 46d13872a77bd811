"""Fuzzes stored files: python benchmarks/fuzz.py TARGET [SECONDS [SEED]].

TARGET is `result` (result.json), `raw` (raw files) or `parameters` (parameters files).
Defaults: 600 s and a random seed, which is printed. The functions behind the commands read,
compare and publish each changed file. They may reject it with their documented errors; any
other exception, or over 10 s of CPU time, is a finding. Prints one finding of each kind; exits
with 1 if there is any.
"""

import argparse
import json
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import perfkit
from perfkit.analysis.comparison.history import history
from perfkit.core.paths import ROOT
from perfkit.core.results.frames import load_steps
from perfkit.core.results.identity import identity_digest
from perfkit.core.results.outputs import load
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement, ResultError, raw_digests, read_raw_files
from perfkit.report.measurement import write_measurement
from perfkit.report.site import write_index, write_tables
from perfkit.sweep.jobs import read_jobs
from perfkit.sweep.sweep_file import SweepError

LONGEST_SECONDS = 10
EXAMPLES = ROOT / "outputs" / "examples"
BASES = ("resnet50-paddle-fp32-1x2-b8*", "resnet50-paddle-fp32-1x1-b8*", "bert-jax*")
ODD = [None, True, 0, -1, 1, 2, 1e308, -1e308, 5e-324, 1e-9, 2**53, 10**400, "é" * 999]
ODD += ["", "x", "<b>", "\0", "\x1b[2J", "2026-01-01T00:00:00+00:00", "nan", "../x"]
ODD += [[], {}, [1], {"x": 1}, [[]]]
PAGES_SHARE = 0.03
"""Share of the files for which a page is written, which takes 0.3 s."""
DOCUMENTED = (ResultError, perfkit.ComparisonError, SweepError)


def places(value, place=()):
    """Yield the paths of all values within a JSON value."""
    yield place
    parts = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from places(part, (*place, key))


def changed_value(content, chance):
    """Return the JSON value with one value replaced, removed, renamed, scaled or copied."""
    every_place = [place for place in places(content) if place]
    *above, key = chance.choice(every_place)
    holder = value_at(content, above)
    other = value_at(content, chance.choice(every_place))
    match chance.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            new_key = chance.choice(["x", "", "schema_version", "code"])
            holder[new_key] = holder.pop(key)
        case 2:
            holder[key] = json.loads(json.dumps(other))
        case 3 if type(holder[key]) in (int, float):
            holder[key] *= chance.choice([-1, 0, 0.5, 2, 1e9, 1 + 1e-12])
        case _:
            holder[key] = chance.choice(ODD)
    return content


def value_at(content, place):
    """Return the value at this path within a JSON value."""
    for key in place:
        content = content[key]
    return content


def changed_bytes(data, chance):
    """Return the bytes with parts changed, removed or repeated."""
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        begin = chance.randrange(len(data) + 1)
        end = min(len(data), begin + chance.choice([1, 1, 4, 100, 10**6]))
        piece = chance.choice([b"", chance.randbytes(end - begin), bytes(data[begin:end]) * 2])
        data[begin:end] = piece or chance.choice([b"", b"\n", b"{", b'"', b"NaN", b"\xff"])
    return bytes(data)


def judge(folder, base, chance):
    """Use a stored measurement in every way that commands do."""
    frame = load(folder.parent)
    assert len(frame) + len(frame.attrs["unreadable"]) >= 1
    history(frame)
    write_tables(folder.parent, frame)
    write_index(folder.parent)
    for pair in ((base, folder), (folder, base)):
        refusable(lambda pair=pair: str(perfkit.compare(*pair, across=["cpu"])))
    measurement = refusable(lambda: Measurement.read(folder))
    refusable(lambda: load_steps(folder))
    if measurement and chance.random() < PAGES_SHARE:
        write_measurement(measurement)


def refusable(call):
    """Return the call's result; None if it rejects its input."""
    try:
        return call()
    except DOCUMENTED as error:
        str(error).encode()
        return None


def result(outputs, base, chance):
    """Store a measurement with a changed result.json, half of them with a matching id."""
    source = base / "result.json"
    content = json.loads(source.read_text())
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        content = changed_value(content, chance)
        if not isinstance(content, dict) or not content:
            break
    text = json.dumps(content).encode()
    name = base.name
    if chance.random() < 0.2:
        text = changed_bytes(source.read_bytes(), chance)
    elif chance.random() < 0.6:
        name, text = with_own_id(name, content, text)
    folder = outputs / name
    shutil.copytree(base, folder)
    (folder / "result.json").write_bytes(text)
    return folder


def with_own_id(name, content, text):
    """Return name and text with the id that matches the content, if that is a valid result."""
    try:
        result = Result.model_validate_json(text)
        data = result.input_data and result.input_data.sha256
        digest = identity_digest(result.config, result.protocol, result.environment, data)
    except ValueError:
        return name, text
    name = f"{name.rpartition('-')[0]}-{digest}"
    return name, json.dumps(content | {"id": name}).encode()


def raw(outputs, base, chance):
    """Store a measurement with a changed raw file, half of them with matching digests."""
    folder = outputs / base.name
    shutil.copytree(base, folder)
    file = chance.choice(sorted(folder.glob("repeats/*/*.jsonl")))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for _ in range(chance.choice([1, 1, 2, 5])):
        lines = changed_value(lines, chance)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    text = text.encode()
    if chance.random() < 0.3:
        text = changed_bytes(file.read_bytes(), chance)
    file.write_bytes(text)
    if chance.random() < 0.5:
        index = int(file.parent.name)
        content = json.loads((folder / "result.json").read_text())
        for repeat in content["repeats"]:
            if repeat["index"] == index:
                repeat["raw_files"] = raw_digests(read_raw_files(file.parent))
        (folder / "result.json").write_text(json.dumps(content))
    return folder


def stored(change):
    """Return a trial of a stored measurement that `change` makes from an example."""

    def trial(scratch, chance):
        base = next(EXAMPLES.glob(chance.choice(BASES)))
        judge(change(scratch, base, chance), base, chance)

    return trial


def parameters(scratch, chance):
    """Read a changed parameters file, for this machine or for Slurm."""
    source = chance.choice(sorted((ROOT / "parameters").glob("*.yaml")))
    file = scratch / "changed.yaml"
    file.write_bytes(changed_bytes(source.read_bytes(), chance))
    refusable(lambda: read_jobs(file, {}, elsewhere=chance.choice([False, True])))


TARGETS = {"result": stored(result), "raw": stored(raw), "parameters": parameters}


class TooLongError(Exception):
    """A call took over LONGEST_SECONDS of CPU time."""


def too_long(*_):
    raise TooLongError


def fuzz(target, seconds, seed, most=10**9):
    """Fuzz for so many seconds or `most` files. Return the number of files, the first finding
    of each kind (the file's seed and the traceback) and the number of findings."""
    findings, kinds, tried = {}, Counter(), 0
    # Limit CPU time, not wall time: a busy machine is no hang, and no read here may block.
    signal.signal(signal.SIGVTALRM, too_long)
    end = time.monotonic() + seconds
    while time.monotonic() < end and tried < most:
        tried += 1
        with tempfile.TemporaryDirectory() as scratch:
            signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SECONDS)
            try:
                TARGETS[target](Path(scratch), random.Random(f"{seed}-{tried}"))
            except Exception as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                kind = type(error), frame.filename, frame.lineno
                kinds[kind] += 1
                findings.setdefault(kind, (f"{seed}-{tried}", traceback.format_exc()))
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return tried, [*findings.values()], kinds.total()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("seconds", nargs="?", type=float, default=600)
    parser.add_argument("seed", nargs="?", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    target, seed = arguments.target, arguments.seed
    tried, findings, count = fuzz(target, arguments.seconds, seed)
    for file_seed, text in findings:
        print(f"--- {file_seed}\n{text}")
    kinds = f"{count} findings of {len(findings)} kinds"
    print(f"{target}, seed {seed}: {tried} files, {kinds}")
    raise SystemExit(bool(findings))
