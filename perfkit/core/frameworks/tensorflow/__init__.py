"""TensorFlow; trains the networks of perfkit.core.frameworks.functional."""

from perfkit.core.frameworks.base import Framework

FRAMEWORK = Framework(
    display_name="TensorFlow",
    colour="#e08a00",
    marker="D",
    module="tensorflow",
    package="tensorflow",
    install="pip install -e '.[tensorflow]'",
    supports={
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        # TensorFlow's convolution gradients on a CPU support no other layout.
        "layout": ("NHWC",),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32", "amp", "bf16"),
    layout="NHWC",
    execution="dynamic",
    versions={"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",)},
    cpu_settings=lambda _vendor, threads: {"TF_NUM_INTRAOP_THREADS": str(threads)},
    loader_threads=True,
)
