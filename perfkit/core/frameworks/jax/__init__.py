"""JAX; trains the networks of perfkit.core.frameworks.functional."""

from typing import ClassVar

from perfkit.core.frameworks.facts import Framework


class Jax(Framework):
    display_name = "JAX"
    colour = "#2a9d6f"
    marker = "^"
    module = "jax"
    package = "jax"
    install = "pip install -e '.[jax]'"
    supports: ClassVar = {
        "precision": ("fp32", "bf16"),
        "execution": ("static",),
        "optimizer": ("momentum", "adamw"),
        "input": ("dali", "synthetic"),
        "strategy": ("none",),
        "device": ("cpu",),
    }
    cpu_precisions = ("fp32", "bf16")
    layout = "NHWC"
    execution = "static"
    versions: ClassVar = {"jax": ("jax",), "jaxlib": ("jaxlib",)}


FRAMEWORK = Jax()
