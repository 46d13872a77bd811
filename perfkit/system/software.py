"""What is installed, read from the packages' files: importing a framework would start it."""

import contextlib
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

CUDA_VERSIONS = tuple(str(major) for major in range(11, 20))
"""With which the names of packages of NVIDIA end, as in nvidia-cudnn-cu12."""


def installed(module: str) -> bool:
    """Whether `module` could be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def constants(module: str, file: str) -> dict[str, str]:
    """The texts that `file` of an installed module assigns, such as `cuda_version`, without
    those that say that the build has no such part; none of a module that is not installed."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    text = (Path(spec.origin).parent / file).read_text()
    found = re.findall(r"^(\w+) *(?:: .+?)?= *['\"](.+)['\"]$", text, re.MULTILINE)
    return {name: value for name, value in found if value not in ("False", "0", "None")}


def distribution(*names: str) -> str | None:
    """The version of the first of these distributions that is installed, if one is."""
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return None
