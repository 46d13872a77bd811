"""The peak speed of a script's device, measured after its window."""

from types import SimpleNamespace
from typing import Any

from perfkit.core.timing.classification import classify
from perfkit.core.timing.devices import Device

PRECISIONS = {
    "bf16": ("bf16", "bfloat16"),
    "amp": ("amp", "fp16", "float16", "half"),
    "fp32": ("fp32", "float32", "tf32", "32"),
}
"""Precision of the suite -> texts in the precision that a script tells."""


class UnknownPrecisionError(ValueError):
    """The peak can't be measured in the precision of the training."""


def script_peak(
    framework: str, device_type: str, precision: str | None, device: Device
) -> dict[str, Any]:
    """Return the fields of the event `peak`; `missing`, the reason, if it can't be measured,
    such as a package that perfkit's measurement needs and the user's interpreter lacks."""
    try:
        return _measured(framework, device_type, precision, device)
    except UnknownPrecisionError as error:
        return {"missing": str(error)}
    except Exception as error:
        return {"missing": classify(error).message}


def _measured(
    framework: str, device_type: str, precision: str | None, device: Device
) -> dict[str, Any]:
    used = suite_precision(precision)
    from perfkit.core.frameworks import FRAMEWORKS
    from perfkit.core.frameworks.interface import backend
    from perfkit.core.worker.peak import measure_peak

    if not FRAMEWORKS[framework].takes(precision=used):
        raise UnknownPrecisionError(f"{framework} has no measurement in {used}")
    config: Any = SimpleNamespace(device=device_type, precision=used)
    return measure_peak(backend(framework).Workloads(config), device)


def suite_precision(precision: str | None) -> str:
    """Return the suite's name of the precision that a script tells. Raises
    UnknownPrecisionError."""
    if precision is None:
        raise UnknownPrecisionError(
            "the script does not tell its precision: StepTimer(..., precision='bf16')"
        )
    for used, texts in PRECISIONS.items():
        if any(text in precision.lower() for text in texts):
            return used
    raise UnknownPrecisionError(
        f"the peak can't be measured in the precision {precision!r} that the script tells"
    )
