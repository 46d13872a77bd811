"""JAX; trains the networks of perfkit.core.frameworks.functional."""

from perfkit.core.frameworks.base import Framework

FRAMEWORK = Framework(
    display_name="JAX",
    colour="#2a9d6f",
    marker="^",
    module="jax",
    package="jax",
    install="pip install -e '.[jax]'",
    supports={
        "precision": ("fp32", "bf16"),
        "execution": ("static",),
        "optimizer": ("momentum", "adamw"),
        "input": ("dali", "synthetic"),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32", "bf16"),
    layout="NHWC",
    execution="static",
    versions={"jax": ("jax",), "jaxlib": ("jaxlib",)},
)
