"""What identifies a measurement: its configuration, protocol, environment and data set."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from perfkit.core.config import Protocol, RunConfig
from perfkit.core.results.base import Stored
from perfkit.core.script_config import AnyConfig, ScriptConfig

NOT_IDENTITY = ("suite_commit", "suite_modified")
"""Facts that don't identify a measurement: `suite_source` has the code's digest."""


class Reading(Stored):
    """One fact of the environment, or why it could not be read."""

    value: str | int | float | bool | list[str] | None
    """the fact; None if missing"""
    missing: str | None = None
    """why there is no value"""


def identity(environment: Mapping[str, Reading]) -> dict[str, Any]:
    """Return the facts that must agree for repeats to belong to one measurement."""
    identifying = {}
    for name, reading in sorted(environment.items()):
        if name not in NOT_IDENTITY:
            identifying[name] = reading.value
    return identifying


def identity_digest(
    config: RunConfig,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
) -> str:
    """Return the digest at the end of a measurement's id."""
    parts = [
        config.identity,
        protocol.model_dump(),
        identity(environment),
        data_sha256,
    ]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def measurement_id(
    config: AnyConfig,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
) -> str:
    """Return the id of a measurement, which is the name of its folder: configuration, protocol,
    label, node of a fleet, and a digest of everything that identifies it, so that only
    repeats of the same measurement share a folder."""
    parts = [
        *_work_parts(config),
        protocol.name,
        config.label,
        config.node,
        identity_digest(config, protocol, environment, data_sha256),
    ]
    return "-".join(part for part in parts if part)


def _work_parts(config: AnyConfig) -> list[str]:
    """Return the parts of an id that name the work and how it runs."""
    if isinstance(config, ScriptConfig):
        return [config.short_name, config.framework, config.topology, config.device]
    return [
        config.model,
        config.framework,
        config.precision,
        config.topology,
        f"b{config.batch_size}",
        config.device,
        config.input,
    ]
