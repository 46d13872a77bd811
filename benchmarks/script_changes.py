"""Whether `perfkit compare --live` finds changes of a user's script, measured for real.

python benchmarks/script_changes.py [COMPARISONS] measures examples/gpt_torch.py on the CPU in
two variants with interleaved repeats, COMPARISONS times (default 1) each:

compile  without --compile, and with it
slower   a copy, and one that waits for 5 % of each step
same     two copies that differ in a comment

It prints the verdict of each comparison, and the folder with the pages.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.core.paths import ROOT

PERFKIT = str(Path(sys.executable).parent / "perfkit")
EXAMPLE = ROOT / "examples" / "gpt_torch.py"
MAIN = "def main() -> None:\n"
UPDATE = "        optimizer.step()\n"
"""Lines of the example: the waits are defined before the first, and made after the second."""
WAIT = """
import time


class Waits:
    ended = time.perf_counter()

    @classmethod
    def wait(cls) -> None:
        step_seconds = time.perf_counter() - cls.ended
        time.sleep(0.05 * step_seconds)
        cls.ended = time.perf_counter()


"""
SMALL = "--threads 1 --layers 2 --width 128 --length 64"
"""Arguments of the example that make steps of 30 ms on the CPU of docs/figures.md."""
REQUEST = {
    "device": "cpu",
    "warmup_steps": 10,
    "measured_steps": 80,
    "repeats": 36,
}


def write_copies(folder: Path) -> None:
    """Write the example, the same with another comment, and a slower one."""
    example = EXAMPLE.read_text()
    assert example.count(MAIN) == 1
    assert example.count(UPDATE) == 1
    slower = example.replace(MAIN, WAIT + MAIN)
    slower = slower.replace(UPDATE, UPDATE + "        Waits.wait()\n")
    (folder / "base.py").write_text(example)
    (folder / "same.py").write_text(example + "# The end.\n")
    (folder / "slower.py").write_text(slower)


def compared(base: str, other: str, request: dict[str, object], folder: Path) -> str:
    """Measure two variants of base.py, and return the verdict on the other one."""
    # A comparison that fails must not leave the previous one's result to be read.
    file = folder / "comparison.json"
    file.unlink(missing_ok=True)
    command = [PERFKIT, "compare", "--live", "base.py", base, other, "--json", str(file)]
    for name, value in request.items():
        command += ["-p", f"{name}={value}"]
    # Exits with 1 for a regression too.
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert file.exists(), done.stderr
    comparison = InterleavedComparison.model_validate_json(file.read_text())
    (pair,) = comparison.pairs
    return pair.statement(comparison.level, comparison.threshold).text()


def main(comparisons: int) -> None:
    folder = Path(mkdtemp(prefix="script-changes-"))
    write_copies(folder)
    small = {"arguments": SMALL}
    kinds = {
        "compile": (f"arguments={SMALL}", f"arguments={SMALL} --compile", {}),
        "slower": ("script=base.py", "script=slower.py", small),
        "same": ("script=base.py", "script=same.py", small),
    }
    for number in range(comparisons):
        for kind, (base, other, parameters) in kinds.items():
            outputs = folder / f"{kind}-{number}"
            request = REQUEST | parameters | {"outputs_dir": outputs}
            verdict = compared(base, other, request, folder)
            print(f"{kind} {number}: {verdict}", flush=True)
    print(f"pages: {folder}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
