"""The modules that a script has imported, without installed ones."""

import os
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages, which may lie in the script's folder with an environment."""
PACKAGE = "perfkit"


def late_modules(script: Path, static_modules: Iterable[str]) -> list[str]:
    """Return the names of the modules in or below the script's folder that this process has
    imported, without those in `static_modules`, and of the packages from further folders on
    the path, such as one that the script itself has added."""
    modules = modules_by_folder()
    beside = {*modules_below(_real(script).parent, modules)}
    late = beside - {*static_modules}
    for other in source_folders():
        elsewhere = {*modules_below(other, modules)} - beside
        late |= {name.partition(".")[0] for name in elsewhere}
    return sorted(late)


def source_folders() -> Iterator[Path]:
    """Yield the folders on the path with neither Python's own nor installed modules."""
    standard_library = _real(sysconfig.get_path("stdlib"))
    for entry in sys.path:
        folder = _real(entry)
        if not folder.is_relative_to(standard_library) and not INSTALLED & {*folder.parts}:
            yield folder


def modules_below(folder: Path, modules: Mapping[Path, list[str]]) -> Iterator[str]:
    """Yield the names of the modules in or below a folder, without packages that are installed
    there."""
    for other, names in modules.items():
        if other.is_relative_to(folder) and not INSTALLED & {*other.relative_to(folder).parts}:
            yield from names


def modules_by_folder() -> dict[Path, list[str]]:
    """Return the names of the imported modules by the folder of their files."""
    # Resolving the path of each of a framework's thousands of modules takes a second; they are
    # in a few hundred folders.
    real_folder = cache(_real)
    modules = defaultdict(list)
    for name, module in [*sys.modules.items()]:
        root, _dot, _rest = name.partition(".")
        file = None if root in ("__main__", "__mp_main__", PACKAGE) else _file_of(module)
        if file:
            folder = _real(file).parent if file.is_symlink() else real_folder(file.parent)
            modules[folder].append(name)
    return modules


def _file_of(module: ModuleType) -> Path | None:
    """Return the file of a module; None for one without a file, or if it can't be told. Some
    modules that are no files, such as torch.ops, have a relative one."""
    try:
        file = module.__file__
        return Path(file) if file and Path(file).is_absolute() else None
    # A module may be any object, of which attributes may have any effect.
    except Exception:
        return None


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))
