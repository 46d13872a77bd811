"""What must be known of a framework without importing it."""

RANK_VARIABLES = {
    "torch": {
        "rank": ("RANK", "0"),
        "ranks": ("WORLD_SIZE", "1"),
        "local_rank": ("LOCAL_RANK", "0"),
        "devices": ("LOCAL_WORLD_SIZE", "1"),
    },
    "paddle": {
        "rank": ("PADDLE_TRAINER_ID", "0"),
        "ranks": ("PADDLE_TRAINERS_NUM", "1"),
        "local_rank": ("PADDLE_RANK_IN_NODE", "0"),
        "devices": ("PADDLE_LOCAL_SIZE", "1"),
    },
}
"""Framework -> this process's place among all ranks and among those of its node -> environment
variable in which the framework's launcher tells it, and the value without a launcher."""


def default_layout(framework: str, device: str, precision: str) -> str:
    """Return the default layout of images. Tensor cores require NHWC; for fp32, cuDNN's NCHW
    kernels are faster in Paddle."""
    if framework == "paddle" and (device != "gpu" or precision not in HALF_PRECISIONS):
        return "NCHW"
    return "NHWC"


HALF_PRECISIONS = ("amp", "pure_fp16", "bf16")
