"""Writes the newest versions that pyproject.toml allows: into constraints.txt, and into
requirements/*.txt with the hashes of their files. Prints which packages have a newer release.

    python requirements/renew.py UV    (by make constraints)
"""

import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
CONSTRAINTS = ROOT / "constraints.txt"

EVERYTHING = ("cpu", "torch", "jax", "tensorflow", "huggingface", "torchvision", "lab", "test")
"""The extras whose packages are all on PyPI."""

EXTRAS = {
    "cpu": ("cpu",),
    "check": ("cpu", "test"),
    "lab": ("cpu", "lab"),
    "torch": ("torch",),
    "jax": ("jax",),
    "tensorflow": ("tensorflow",),
    "test": EVERYTHING,
}
"""The extras that each file in requirements/ installs."""

PIN = re.compile(r"([\w.-]+)==([^\s;]+)(?: ; ([^#]+?))?(?: +# via (.+))?")


class Pin(NamedTuple):
    """A line of constraints.txt."""

    name: str
    version: str
    marker: str | None
    users: str | None
    """The packages that require this one."""


def compile_pins(uv: str, requirements: Iterable[str], *options: str) -> str:
    """Return the newest versions that fit together, on each Python and platform."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--no-header", *options, "-"]
    text = "\n".join(requirements)
    done = subprocess.run(
        command, cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def with_extras(extras: Iterable[str]) -> list[str]:
    """Return the options of uv for perfkit's requirements with these extras."""
    return ["pyproject.toml", *(f"--extra={extra}" for extra in extras)]


def write_below_its_comment(path: Path, pins: str) -> None:
    """Replace the pins in a file, and keep the comment at its top."""
    comment = "".join(re.findall(r"^#.*\n", path.read_text(), re.MULTILINE))
    path.write_text(comment + pins)


def pins_by_name(text: str) -> dict[str, list[Pin]]:
    """Return each package's pins. Where versions differ by Python, the newest is the last."""
    pins = defaultdict(list)
    for found in map(PIN.fullmatch, text.splitlines()):
        if found:
            pin = Pin(*found.groups())
            pins[pin.name].append(pin)
    return dict(pins)


def newest_releases(uv: str, chosen: dict[str, list[Pin]]) -> dict[str, list[Pin]]:
    """Return pins of the same packages that regard no requirement but Python's version."""
    requirements = []
    for name, pins in chosen.items():
        marker = pins[0].marker if len(pins) == 1 else None
        requirements.append(f"{name} ; {marker}" if marker else name)
    return pins_by_name(compile_pins(uv, requirements, "--no-deps"))


def older_than_newest(
    chosen: dict[str, list[Pin]], newest: dict[str, list[Pin]]
) -> Iterator[str]:
    """Yield a sentence for each chosen version of which there is a newer release."""
    for name, pins in chosen.items():
        *earlier, last = pins
        latest = newest[name][-1].version
        for pin in earlier:
            yield f"{name} {pin.version} where {pin.marker}; elsewhere {last.version}"
        if last.version != latest:
            yield f"{name} {last.version}, not {latest}; required by {last.users}"


def main(uv: str) -> None:
    """Write constraints.txt and requirements/*.txt, and print what stays behind."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    building = project["build-system"]["requires"]
    text = compile_pins(uv, building, "--annotation-style=line", *with_extras(EVERYTHING))
    write_below_its_comment(CONSTRAINTS, text)
    for name, extras in EXTRAS.items():
        options = ["--generate-hashes", "--no-annotate", f"--constraint={CONSTRAINTS}"]
        hashed = compile_pins(uv, building, *options, *with_extras(extras))
        write_below_its_comment(FOLDER / f"{name}.txt", hashed)
    chosen = pins_by_name(text)
    for sentence in older_than_newest(chosen, newest_releases(uv, chosen)):
        print(sentence)


if __name__ == "__main__":
    main(*sys.argv[1:])
