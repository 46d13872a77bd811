"""What is installed, read from the packages' files: importing a framework would start it."""

import ast
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path


def installed(module: str) -> bool:
    """Whether `module` could be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def paddle_build(name: str) -> str | None:
    """A constant of paddle/version, such as `commit` or `cuda_version`.

    None without Paddle, or where the build has no such part (a CPU build has no CUDA).
    """
    spec = find_spec("paddle")
    if spec is None or spec.origin is None:
        return None
    source = (Path(spec.origin).parent / "version" / "__init__.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            value = str(ast.literal_eval(node.value))
            return None if value in ("False", "0", "None") else value
    return None


def dali() -> str | None:
    """DALI's version and the CUDA that it was built for; None without DALI."""
    for cuda in ("110", "120", "130"):
        try:
            return f"{version(f'nvidia-dali-cuda{cuda}')} (CUDA {cuda[:2]} build)"
        except PackageNotFoundError:
            continue
    return None
