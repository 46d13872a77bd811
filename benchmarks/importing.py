"""How fast a large log is read, and in how much memory.

python benchmarks/importing.py [MEGABYTES [NAME]]: writes a log of each format that has NAME in
its name (all of them), a print for each step and nothing else, the slowest kind. A process of
its own reads it and prints MB/s of its time on a core, the peak of its memory, and how many
times as long as counting the lines it took.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from perfkit.config import ROOT
from perfkit.logs.reader import read_logs

sys.path.insert(0, str(ROOT / "tests"))
import test_log_formats as writers

STEPS = np.random.default_rng(0).uniform(0.1, 0.2, 20_000)
LOGS = {
    "PaddleClas, static graph": lambda: writers.paddleclas_static(STEPS, 1),
    "PaddleClas, dynamic graph": lambda: writers.paddleclas_dynamic(STEPS, 1),
    "PaddleNLP BERT": lambda: writers.paddlenlp_bert(STEPS, 1),
    "Paddle 1.8": lambda: writers.paddle18(STEPS[:5000]),
    "FleetX": lambda: writers.fleetx(STEPS[:5000]),
    "OneFlow": lambda: writers.oneflow(STEPS, 1),
    "tf_cnn_benchmarks": lambda: writers.tf_cnn(STEPS, 1),
} | {
    f"{form}, {name}": lambda write=write, suite=suite: write(suite, STEPS, 1)
    for name, suite in writers.SUITES.items()
    for form, write in (("DLL", writers.dllogger_text), ("DLLL", writers.dllogger_file))
}


def tell(path: Path) -> None:
    """Reads one file and prints what it took; runs in a process of its own."""
    began = time.process_time()
    (log,) = read_logs(path)
    seconds = time.process_time() - began
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size, began = path.stat().st_size, time.process_time()
    lines = sum(1 for _ in path.open("rb"))
    plain_seconds = time.process_time() - began
    print(
        f"{log.format:45} {size / 1e6:6.0f} MB {lines:9,} lines {len(log.windows):9,} windows "
        f"{size / 1e6 / seconds:4.0f} MB/s {peak_bytes / 1e6:4.0f} MB "
        f"{seconds / plain_seconds:5.1f} x"
    )


def main(megabytes: int = 100, name: str = "") -> None:
    for known, write in LOGS.items():
        if name in known:
            with tempfile.NamedTemporaryFile(suffix=".log") as file:
                part = write().encode()
                while file.tell() < megabytes * 1e6:
                    file.write(part)
                file.flush()
                subprocess.run([sys.executable, __file__, "--tell", file.name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tell"]:
        tell(Path(sys.argv[2]))
    else:
        main(*([int(sys.argv[1]), *sys.argv[2:3]] if sys.argv[1:] else []))
