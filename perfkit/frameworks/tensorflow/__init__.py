"""TensorFlow; its networks are those of perfkit.frameworks.functional."""

from perfkit.frameworks.base import Framework

FRAMEWORK = Framework(
    name="TensorFlow",
    module="tensorflow",
    extra="tensorflow",
    supports={
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        # On a CPU, TensorFlow's own gradients of convolutions know no other.
        "layout": ("NHWC",),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32", "amp", "bf16"),
    layout="NHWC",
    execution="dynamic",
    versions={"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",)},
    cpu_settings=lambda _vendor, threads: {"TF_NUM_INTRAOP_THREADS": str(threads)},
)
