"""The modules of a script's folder that it has imported."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages, which may lie in the script's folder with an environment."""
PACKAGE = "perfkit"


def late_modules(script: Path, static_modules: Iterable[str]) -> list[str]:
    """Return the names of the modules in or below the script's folder that this process has
    imported, without those in `static_modules`."""
    folder = Path(os.path.realpath(script)).parent
    late = {*local_modules(folder)} - {*static_modules}
    return sorted(late)


def local_modules(folder: Path) -> Iterator[str]:
    """Yield the names of the imported modules in or below a folder, without packages that are
    installed there."""
    for name, module in [*sys.modules.items()]:
        root, _dot, _rest = name.partition(".")
        if root in ("__main__", "__mp_main__", PACKAGE):
            continue
        file = _file_of(module)
        if file and file.is_relative_to(folder):
            below = file.relative_to(folder)
            if not INSTALLED & {*below.parts}:
                yield name


def _file_of(module: ModuleType) -> Path | None:
    """Return the file of a module; None for one without a file, or if it can't be told. Some
    modules that are no files, such as torch.ops, have a relative one."""
    try:
        file = module.__file__
        if not file or not Path(file).is_absolute():
            return None
        return Path(os.path.realpath(file))
    # A module may be any object, of which attributes may have any effect.
    except Exception:
        return None
