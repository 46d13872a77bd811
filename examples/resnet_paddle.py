"""Trains a ResNet-18 in Paddle on images that it makes itself, on a GPU or in a minute on 2 CPU
cores. The lines with `timer` are what perfkit needs.

python examples/resnet_paddle.py
perfkit run examples/resnet_paddle.py -p protocol quick
perfkit run examples/resnet_paddle.py -p protocol quick -p processes 2 -- --batch-size 8
perfkit compare --live examples/resnet_paddle.py arguments='' arguments='--static'
"""

import argparse

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset
from paddle.nn import functional
from paddle.vision.models import resnet18

import perfkit

CLASSES = 10


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16, help="images of a process")
    parser.add_argument("--size", type=int, default=32, help="pixels of an image's sides")
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--static", action="store_true", help="use paddle.jit.to_static")
    return parser.parse_args()


class Images(Dataset):
    """Images of noise; in each class, another pattern of 8 x 8 squares shows through."""

    def __init__(self, images: int, size: int, seed: int) -> None:
        super().__init__()
        patterns = np.random.default_rng(0).random((CLASSES, 3, 8, 8), dtype=np.float32)
        self.patterns = patterns.repeat(size // 8, axis=2).repeat(size // 8, axis=3)
        self.images = images
        self.seed = seed

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """Return an image (3 x size x size) and its class."""
        random = np.random.default_rng((self.seed, index))
        label = int(random.integers(CLASSES))
        pattern = self.patterns[label]
        return pattern + random.random(pattern.shape, dtype=np.float32), label


def main() -> None:
    options = parse_arguments()
    rank = paddle.distributed.get_rank()
    ranks = paddle.distributed.get_world_size()
    if ranks > 1:
        paddle.distributed.init_parallel_env()

    paddle.seed(0)
    model = resnet18(num_classes=CLASSES)
    parameters = sum(int(parameter.size) for parameter in model.parameters())
    if options.static:
        model = paddle.jit.to_static(model)
    if ranks > 1:
        model = paddle.DataParallel(model)
    optimizer = paddle.optimizer.Momentum(options.learning_rate, 0.9, model.parameters())

    images = Images(options.steps * options.batch_size, options.size, seed=rank)
    loader = DataLoader(images, batch_size=options.batch_size)

    timer = perfkit.StepTimer(
        samples_per_step=options.batch_size, unit="images", parameters=parameters
    )
    for step, (batch, labels) in enumerate(timer.batches(loader), start=1):
        loss = functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        timer.step(loss)
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
