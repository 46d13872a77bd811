"""TensorFlow; trains the networks of perfkit.core.frameworks.functional."""

from typing import ClassVar

from perfkit.core.frameworks.facts import Framework


class TensorFlow(Framework):
    display_name = "TensorFlow"
    colour = "#e08a00"
    marker = "D"
    module = "tensorflow"
    package = "tensorflow"
    install = "pip install -c constraints.txt -e '.[tensorflow]'"
    supports: ClassVar = {
        "model": ("resnet50", "bert"),
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        # TensorFlow's convolution gradients on a CPU support no other layout.
        "layout": ("NHWC",),
        "strategy": ("none",),
        "device": ("cpu",),
    }
    cpu_precisions = ("fp32", "amp", "bf16")
    layout = "NHWC"
    execution = "dynamic"
    versions: ClassVar = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "keras": ("keras",)}
    loader_threads = True

    def cpu_settings(self, _vendor: str, threads: int) -> dict[str, str]:
        return {"TF_NUM_INTRAOP_THREADS": str(threads)}


FRAMEWORK = TensorFlow()
