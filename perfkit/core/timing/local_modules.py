"""The modules that a script has imported, without installed ones."""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages, which may lie in the script's folder with an environment."""
PACKAGE = "perfkit"


def late_modules(script: Path, static_modules: Iterable[str]) -> list[str]:
    """Return the names of the modules in or below the script's folder that this process has
    imported, without those in `static_modules`, and of the packages from further folders on
    the path, such as one that the script itself has added."""
    folder = Path(os.path.realpath(script)).parent
    beside = {*local_modules(folder)}
    late = beside - {*static_modules}
    for other in source_folders():
        elsewhere = {*local_modules(other)} - beside
        late |= {name.partition(".")[0] for name in elsewhere}
    return sorted(late)


def source_folders() -> Iterator[Path]:
    """Yield the folders on the path with neither Python's own nor installed modules."""
    standard_library = os.path.realpath(sysconfig.get_path("stdlib"))
    for entry in sys.path:
        folder = Path(os.path.realpath(entry))
        if not folder.is_relative_to(standard_library) and not INSTALLED & {*folder.parts}:
            yield folder


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
