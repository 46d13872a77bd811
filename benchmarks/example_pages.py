"""Replaces the published examples by what was measured: result files and raw steps, then pages
of them all. Notebooks and logs of workers stay behind."""

import getpass
import re
import shutil
import socket
from pathlib import Path

from stages import StageError, perfkit

from perfkit.measuring.paths import ROOT

PUBLISHED = [
    "*/result.json",
    "*/repeats/**/*.jsonl",
    "*/diagnosis.json",
    "*/profile/profile.json",
    "*/diagnosis/*.jsonl",
    "comparisons/*/comparison.json",
    "audits/*/audit.json",
    "verified/*.json",
    "logs/*.log",
]
"""What is copied from the folder of the results."""
CARRIED = ["audits/paddle-perf-e7a07c4/audit.json"]
"""What stays of the published examples: an audit of logs that aren't ours."""
FLEET_OPTIONS = ["--threshold", "10"]
"""The speed of a virtual machine's memory changes by more than the usual 2 % on its own."""
LARGEST = 8_000_000
"""Bytes of all pages together."""


def replace(outputs: str, target: str) -> None:
    """Replace the examples in `target` by what was measured into `outputs`, and write their
    pages. Raises StageError if these are too large or name this machine; both are folders from
    the checkout."""
    copy(ROOT / outputs, ROOT / target)
    slow_node = 1
    perfkit("fleet", target, *FLEET_OPTIONS, statuses=[0, slow_node])
    (ROOT / target / "fleet" / "notebook.ipynb").unlink(missing_ok=True)
    perfkit("report", target)
    check_size(ROOT / target)
    check_names(ROOT / target)
    print(f"{target} is new; then: pytest tests/test_examples.py, git add --all {target}")


def copy(outputs: Path, target: Path) -> None:
    """Copy the files to publish from `outputs`; all else in `target` is removed."""
    carried = {
        name: (target / name).read_bytes() for name in CARRIED if (target / name).exists()
    }
    shutil.rmtree(target, ignore_errors=True)
    for pattern in PUBLISHED:
        for file in outputs.glob(pattern):
            # The examples lie in the folder of the results.
            if target not in file.parents:
                place = target / file.relative_to(outputs)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
    for name, content in carried.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def check_size(target: Path) -> None:
    size = sum(page.stat().st_size for page in target.rglob("*.html"))
    print(f"pages: {size:,} of {LARGEST:,} bytes")
    if size >= LARGEST:
        raise StageError(f"the pages have {size:,} bytes, {LARGEST:,} are allowed")


def check_names(target: Path) -> None:
    """Raise StageError if a file names a folder, the host or the user of this machine."""
    names = machine_names()
    for file in target.rglob("*"):
        if not file.is_file():
            continue
        found = names.search(file.read_bytes())
        if found:
            name = found.group().decode()
            raise StageError(f"{file.relative_to(ROOT)} has {name!r}, of this machine")


def machine_names() -> re.Pattern[bytes]:
    """Return the pattern of what no published file may have."""
    folders = [re.escape(folder) for folder in ("/home/", "/root/", "/tmp/", str(ROOT))]
    words = {getpass.getuser(), socket.gethostname()} - {"root", "localhost"}
    # Whole words: a host may be called vm.
    names = [rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in words]
    return re.compile("|".join([*folders, *names]).encode())
