"""The suite's own figures, each a ratio within one run or a cost per step: `make bench`.

python tests/bench/figures.py [FIGURE …]; without a name, all of them. Pairs are run in turn,
A B B A …, in fresh processes, because the speed of a shared machine drifts; the median of
the ratios pair by pair is what to quote.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from turns import Turns

sys.path.insert(0, str(Path(__file__).parent.parent))
from fake_trainer import planted
from made import write_many

import perfkit
from perfkit.config import ROOT
from perfkit.launch import Place, worker_environment
from perfkit.loop import CpuDevice, train
from perfkit.statistics import median_interval
from perfkit.worker import RawFile

HERE = Path(__file__).parent
SAMPLES = ROOT / "data" / "samples"
PAIRS = int(os.environ.get("PAIRS", "10"))


def result_of(**parameters):
    """The result of one repeat through the suite's own way, in fresh processes."""
    with tempfile.TemporaryDirectory() as outputs:
        request = {"device": "cpu", "repeats": 1, "outputs_dir": outputs} | parameters
        plan = perfkit.plan("resnet50", request)
        result = perfkit.measure(plan.config, plan.protocol).result
    assert result.status == "complete", result.failure
    return result


def measured(**parameters):
    """Images/s of one repeat."""
    return result_of(**parameters).throughput.value


def paired(one, other, pairs=PAIRS):
    """Run both in turn and print each pair and the median ratio with its interval."""
    ratios, ones, others = [], [], []
    for pair in range(pairs):
        turns = (one, other) if pair % 2 == 0 else (other, one)
        values = {turn: turn() for turn in turns}
        ones.append(values[one])
        others.append(values[other])
        ratios.append(values[one] / values[other])
        print(f"  {ones[-1]:9.4g} / {others[-1]:9.4g} = {ratios[-1]:.4f}", flush=True)
    print(f"  medians {statistics.median(ones):.4g} and {statistics.median(others):.4g}")
    print(f"  ratio {told(ratios)}")


def told(ratios):
    """Their median, how many they are, and the interval of the median."""
    text = f"{statistics.median(ratios):.4f} (median of {len(ratios)}"
    if interval := median_interval(ratios):
        text += f"; {interval.level:.1%} interval {interval.low:.4f} to {interval.high:.4f}"
    return text + ")"


def transparency():
    """Throughput through the notebook / of a bare Paddle loop, taking their steps in turn."""
    # Smaller images than 224 px: more steps in the same time, of which the suite's own cost is
    # a larger part.
    size, batch, warmup, steps = 160, 4, 6, 24
    ratios = []
    for _run in range(2 * PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            turns = Turns(Path(folder))
            request = {"device": "cpu", "image_size": size, "batch_size": batch, "repeats": 1}
            request |= {"warmup_steps": warmup, "measured_steps": steps, "outputs_dir": folder}
            options = [word for pair in request.items() for word in ("-p", *map(str, pair))]
            notebook = str(ROOT / "notebooks" / "resnet50.ipynb")
            suite = [sys.executable, "-m", "papermill", notebook, f"{folder}/out.ipynb"]
            # The suite looks at one batch before its first step: the bare loop has one more.
            numbers = map(str, (size, batch, warmup + 1, steps))
            bare = [sys.executable, str(HERE / "bare_loop.py"), str(SAMPLES), *numbers]
            config = perfkit.plan("resnet50", {"device": "cpu"}).config
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            quiet |= {"stderr": subprocess.DEVNULL}
            with (
                subprocess.Popen(
                    [*suite, *options], env=os.environ | turns.variables("a"), **quiet
                ) as one,
                subprocess.Popen(
                    bare,
                    env=worker_environment(config, Place()) | turns.variables("b"),
                    **quiet,
                ) as other,
            ):
                turns.give(warmup + 1 + steps)
                statuses = one.wait(), other.wait()
            assert statuses == (0, 0), statuses
            (result,) = Path(folder).glob("*/result.json")
            # Batch 0 is the look before the first step. The end of the bare loop's last step
            # can't be seen from outside, so both sides leave that one out.
            window = slice(warmup + 1, warmup + steps)
            suite_steps = perfkit.load_steps(result.parent)["seconds"].tolist()
            measured_by_suite = suite_steps[warmup : warmup + steps - 1]
            suite_seconds = sum(measured_by_suite) - sum(turns.waits("a")[window])
            bare_seconds = sum(turns.step_seconds("b")[window])
            ratios.append(bare_seconds / suite_seconds)
            rates = [batch * (steps - 1) / s for s in (suite_seconds, bare_seconds)]
            print(f"  {rates[0]:.4g} / {rates[1]:.4g} images/s = {ratios[-1]:.4f}", flush=True)
    print(f"  ratio {told(ratios)}")


def timer():
    """The timer's own cost per step, raw file included."""
    steps = 20_000

    class Nothing:
        def backward(self, batch, *, exchange):
            return 1.0

        def update(self):
            return

    with tempfile.TemporaryDirectory() as folder:
        raw = RawFile(Path(folder) / "raw.jsonl")
        began = time.perf_counter()
        train(
            Nothing(),
            iter(range(steps)),
            CpuDevice(),
            raw.write,
            samples=1,
            accumulate=1,
            warmup_steps=0,
            measured_steps=steps,
            read_losses_at_once=True,
        )
        print(f"  {(time.perf_counter() - began) / steps * 1e6:.1f} µs a step, {steps} steps")


def driver():
    """The driver's own share of a core while its workers train."""
    began, used = time.perf_counter(), time.process_time()
    measured(input="synthetic", measured_steps=20)
    share = (time.process_time() - used) / (time.perf_counter() - began)
    print(f"  {share:.2%} of one core, start included")


def cpu_settings():
    """Throughput with the CPU settings / Paddle as installed (batch 8, synthetic input)."""
    request = {"batch_size": 8, "input": "synthetic", "warmup_steps": 1, "measured_steps": 3}
    pairs = min(PAIRS, 3)
    paired(lambda: measured(**request), lambda: measured(**request, cpu_tuning=False), pairs)


def processes():
    """Two processes of one thread, 8 images each / one process of two threads, 16 images."""
    request = {"input": "synthetic", "warmup_steps": 1, "measured_steps": 4}
    paired(
        lambda: measured(**request, processes=2, batch_size=8),
        lambda: measured(**request, processes=1, batch_size=16),
        min(PAIRS, 4),
    )


SLEEPING = """
import sys
if "perfkit.worker" in sys.orig_argv:
    import time
    import perfkit.inputs.synthetic as synthetic
    real = synthetic.batches

    def batches(config, rank):
        for batch in real(config, rank):
            time.sleep({seconds}[rank])
            yield batch

    synthetic.batches = batches
"""
"""Ranks that need known times for a batch, more than for all else."""


def straggler():
    """Images/s of two ranks, one of them needing 0.6 instead of 0.5 s a batch / both 0.5 s."""
    usual, slow = 0.5, 0.6
    request = {"processes": 2, "input": "synthetic", "batch_size": 2, "image_size": 32}
    request |= {"warmup_steps": 1, "measured_steps": 8}
    samples = request["processes"] * request["batch_size"]
    predicted, named = [], []

    def two(*seconds):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sitecustomize.py").write_text(SLEEPING.format(seconds=seconds))
            before = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = folder
            try:
                return result_of(**request)
            finally:
                del os.environ["PYTHONPATH"]
                if before is not None:
                    os.environ["PYTHONPATH"] = before

    def without():
        value = two(usual, usual).throughput.value
        # Every rank waits for the slowest one: a step takes longer by what that one needs more.
        predicted.append(samples / (samples / value + slow - usual) / value)
        return value

    def with_it():
        result = two(usual, slow)
        (repeat,) = result.repeats
        alone = ", ".join(f"{rank.alone_seconds:.3f}" for rank in repeat.ranks)
        print(f"  straggler: rank {repeat.straggler}; alone {alone} s; ", end="")
        print(f"data wait {repeat.data_wait_share:.0%}", flush=True)
        named.append(repeat.straggler)
        return result.throughput.value

    paired(with_it, without, min(PAIRS, 5))
    print(f"  predicted from the runs without: {told(predicted)}")
    print(f"  the slower rank was named in {named.count(1)} of {len(named)} runs")


INPUT_ALONE = """
import sys, time
from importlib import import_module
from perfkit.config import Config
name, data, batch, count = sys.argv[1], sys.argv[2], 32, 40
config = Config(model="resnet50", device="cpu", processes=1, batch_size=batch, input=name,
                image_size=224, layout="NCHW", data_dir=data, dataloader_workers=2,
                dali_threads=2)
batches = import_module(f"perfkit.inputs.{name}").batches(config, 0)
for _ in range(4):
    next(batches)
began = time.perf_counter()
for _ in range(count):
    next(batches)
print(batch * count / (time.perf_counter() - began), flush=True)
"""


def inputs():
    """DALI on the CPU / Paddle's DataLoader, samples a second, 2 threads or processes each."""

    def alone(name):
        command = [sys.executable, "-c", INPUT_ALONE, name, str(SAMPLES)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    paired(lambda: alone("dali"), lambda: alone("dataloader"), min(PAIRS, 5))


def overhead():
    """What share of a warm `make report` is not training."""
    with tempfile.TemporaryDirectory() as outputs:
        request = [
            "-p",
            "device",
            "cpu",
            "-p",
            "protocol",
            "quick",
            "-p",
            "outputs_dir",
            outputs,
        ]
        began = time.perf_counter()
        command = [str(Path(sys.executable).with_name("perfkit")), "run", "resnet50", *request]
        subprocess.run(command, check=True, capture_output=True)
        wall = time.perf_counter() - began
        (result,) = Path(outputs).glob("*/result.json")
        training = perfkit.load_steps(result.parent)["seconds"].sum()
    print(f"  {wall:.1f} s, of which {training:.1f} s are training steps: ", end="")
    print(f"{1 - training / wall:.0%} is not training")


def merging():
    """Seconds and memory from stored measurements to the summary's tables, by their number."""
    sizes = [int(size) for size in os.environ.get("SIZES", "100 1000 10000").split()]
    for size in sizes:
        with tempfile.TemporaryDirectory() as outputs:
            write_many(outputs, size, raw=False)
            told = subprocess.run(
                [sys.executable, "-c", MERGE, outputs],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
        load, tables, mebibytes = map(float, told)
        print(
            f"  {size:6}: load {load:.2f} s + tables {tables:.2f} s = {load + tables:.2f} s, "
            f"{(load + tables) / size * 1000:.2f} ms each; peak {mebibytes:.0f} MiB"
        )


def sweep():
    """Seconds for each configuration of a sweep besides the run time of its trainer, a fake one
    of 1 s: the whole of `perfkit sweep`, start and report included."""
    run_seconds = 1.0
    for count in [int(count) for count in os.environ.get("COUNTS", "20 200").split()]:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sitecustomize.py").write_text(planted(run_seconds))
            parameters = {"device": "cpu", "input": "synthetic", "repeats": 1}
            parameters |= {"outputs_dir": f"{folder}/outputs"}
            matrix = {"batch_size": list(range(1, count + 1))}
            content = {"notebook": "resnet50", "protocol": "quick"}
            content |= {"parameters": parameters, "matrix": matrix}
            file = Path(folder) / "sweep.yaml"
            file.write_text(json.dumps(content))
            start = time.perf_counter()
            subprocess.run(
                [Path(sys.executable).parent / "perfkit", "sweep", file],
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": folder},
            )
            seconds = time.perf_counter() - start
        each = seconds / count - run_seconds
        print(f"  {count:4}: {seconds:.0f} s in all, {each:.2f} s each besides", flush=True)


MERGE = """
import resource, sys, time
from perfkit.report.summary import Summary, measured_tables, published_tables, speedups
start = time.perf_counter()
summary = Summary.of(sys.argv[1])
loaded = time.perf_counter()
for section in (measured_tables, speedups, published_tables):
    section(summary)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(loaded - start, time.perf_counter() - loaded, peak)
"""


def site():
    """Seconds for the whole site of 1,000 measurements, 7 repeats of 120 steps each, whose
    numbers are derived from their raw files again."""
    with tempfile.TemporaryDirectory() as outputs:
        write_many(outputs, 1000)
        start = time.perf_counter()
        command = [Path(sys.executable).parent / "perfkit", "report", outputs]
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - start
        files = list(Path(outputs).rglob("*.html"))
        mebibytes = sum(file.stat().st_size for file in files) / 2**20
    print(f"  {seconds:.0f} s; {len(files)} pages of {mebibytes:.0f} MiB")


FIGURES = (
    timer,
    transparency,
    driver,
    cpu_settings,
    processes,
    straggler,
    inputs,
    overhead,
    merging,
    site,
    sweep,
)

if __name__ == "__main__":
    names = sys.argv[1:] or [figure.__name__ for figure in FIGURES]
    known = {figure.__name__: figure for figure in FIGURES}
    if unknown := set(names) - set(known):
        sys.exit(f"no such figure: {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names:
        print(f"{name}: {known[name].__doc__}", flush=True)
        known[name]()
