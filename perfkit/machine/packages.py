"""What is installed, read from the packages' files: importing a framework would start it."""

import ast
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path


def installed(module: str) -> bool:
    """Whether `module` could be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def constants(module: str, file: str) -> dict[str, str]:
    """The constants that `file` of an installed module assigns, such as `cuda_version`, without
    those that say that the build has no such part; none of a module that is not installed."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    found = {}
    for node in ast.parse((Path(spec.origin).parent / file).read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Constant
        ):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            value = str(node.value.value)
            if isinstance(target, ast.Name) and value not in ("False", "0", "None"):
                found[target.id] = value
    return found


def distribution(beginning: str) -> str | None:
    """The version of the installed distribution whose name is so, or so with a CUDA version
    after it; None if there is none."""
    for one in distributions():
        name = one.metadata["Name"] or ""
        if name == beginning or (beginning.endswith("-cu") and name.startswith(beginning)):
            return one.version
    return None


def dali() -> str | None:
    """DALI's version and the CUDA that it was built for; None without DALI."""
    for cuda in ("110", "120", "130"):
        try:
            return f"{version(f'nvidia-dali-cuda{cuda}')} (CUDA {cuda[:2]} build)"
        except PackageNotFoundError:
            continue
    return None
