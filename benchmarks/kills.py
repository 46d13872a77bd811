"""A sweep of real training, killed with SIGKILL at random times and resumed to its end.

python benchmarks/kills.py [KILLS [SEED]]; defaults: 50 and a random seed, which is printed. Six
configurations of small images differ in batch size, input and processes. After every kill all
results are read, and raw files of finished repeats must be unchanged; at the end the
measurements must be those of an undisturbed sweep. Takes half an hour on 2 cores.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kept import finished_repeats

PERFKIT = Path(sys.executable).with_name("perfkit")
LONGEST_SECONDS = 25.0
SWEEP = {
    "notebook": "resnet50",
    "protocol": "quick",
    "parameters": {"device": "cpu", "image_size": 32, "repeats": 8}
    | {"warmup_steps": 1, "measured_steps": 2},
    "matrix": {"batch_size": [2, 4], "input": ["dali", "synthetic"], "processes": [1, 2]},
    "exclude": [{"batch_size": 4, "processes": 2}],
}


def main(kills, seed):
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "six.yaml"
        file.write_text(json.dumps(SWEEP))
        disturbed, whole = Path(scratch) / "disturbed", Path(scratch) / "whole"

        def start(outputs, **settings):
            command = [PERFKIT, "sweep", file, "-p", "outputs_dir", outputs]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, **settings)

        kept, rerun, ended = {}, 0, 0
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for number in range(1, kills + 1):
            seconds = chance.uniform(0.2, LONGEST_SECONDS)
            process = start(disturbed, **quiet)
            time.sleep(seconds)
            ended += process.poll() is not None
            process.kill()
            process.wait()
            now = finished_repeats(disturbed)
            rerun += sum(now.get(raw) != seen for raw, seen in kept.items())
            kept = now
            print(f"  kill {number} after {seconds:4.1f} s: {len(kept)} raw files", flush=True)
        status = start(disturbed).wait()
        now = finished_repeats(disturbed)
        rerun += sum(now.get(raw) != seen for raw, seen in kept.items())
        undisturbed = start(whole).wait()
        found = (outputs.glob("*/result.json") for outputs in (disturbed, whole))
        ids, wanted = (sorted(path.parent.name for path in results) for results in found)
        print(f"{kills} kills, {ended} of them after the end; exit {status} and {undisturbed}")
        print(f"raw files of finished repeats that were replaced: {rerun}")
        print(f"measurements: {len(ids)}; the same as undisturbed: {ids == wanted}")
        sys.exit(bool(status or undisturbed or rerun or ids != wanted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=50)
    parser.add_argument("seed", type=int, nargs="?", default=random.randrange(10**6))
    asked = parser.parse_args()
    main(asked.kills, asked.seed)
