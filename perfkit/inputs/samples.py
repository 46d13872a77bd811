"""The sample data: JPEG files of photographic statistics, the same bytes on every machine.

A picture is a "dead leaves" image: opaque discs of power-law radii drawn over each other,
which gives the edges and scale invariance of photographs (Lee, Mumford and Huang, Occlusion
models for natural images, IJCV 41, 2001), with noise of several octaves (1/f) over it.
Only integer arithmetic and a raw bit stream are used: floating point and numpy's
distributions may differ from one machine or release to the next, these may not.
"""

import io
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from math import isqrt
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from perfkit.inputs.files import LIST

SIZES = (
    (500, 375),
    (500, 375),
    (500, 375),
    (375, 500),
    (500, 333),
    (500, 400),
    (480, 360),
    (640, 480),
)
LEAVES = 700
OCTAVES = ((4, 44), (8, 30), (16, 22), (32, 16), (64, 12), (128, 9), (256, 7))
GRAIN = 32
QUALITY = 90


def picture(number: int) -> bytes:
    """JPEG bytes of sample `number`, alike on every call and machine."""
    bits = np.random.PCG64(number)
    width, height = SIZES[int(bits.random_raw()) % len(SIZES)]
    image = Image.new("RGB", (width, height), (112, 116, 104))
    draw = ImageDraw.Draw(image)
    reach = 3 * max(width, height) // 4
    for x, y, size, red, green, blue in bits.random_raw(6 * LEAVES).reshape(-1, 6) >> 33:
        # An integer power law: radii of density r^-3 between 6 and `reach` pixels.
        radius = reach * 6 // max(6, isqrt(int(size) % 10**6 * reach**2 // 10**6))
        tint = int(red) % 160 + 30
        colour = tuple((2 * tint + int(c) % 220 + 10) // 3 for c in (red >> 8, green, blue))
        centre_x, centre_y = int(x) % width, int(y) % height
        box = (centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius)
        draw.ellipse(box, fill=colour)
    pixels = np.asarray(image).astype(np.int32) + _octaves(bits, width, height)[..., None]
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _octaves(bits: np.random.PCG64, width: int, height: int) -> np.ndarray:
    """1/f noise, int32 of height x width: each octave is a small random image enlarged."""
    total = np.zeros((height, width), np.int32)
    for cells, amplitude in OCTAVES:
        small = Image.fromarray(_random_bytes(bits, cells, cells))
        large = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))
        total += (large.astype(np.int32) - 128) * amplitude // 128
    return total + (_random_bytes(bits, height, width).astype(np.int32) - 128) * GRAIN // 128


def _random_bytes(bits: np.random.PCG64, rows: int, columns: int) -> np.ndarray:
    words = bits.random_raw(-(-rows * columns // 8)).astype("<u8")
    return words.view(np.uint8)[: rows * columns].reshape(rows, columns)


def name(number: int) -> str:
    """Path of sample `number` below the data folder, in the layout of ImageNet."""
    return f"train/s{number % 64:02}/s{number % 64:02}_{number}.jpeg"


def _write(folder: Path, number: int) -> int:
    path = folder / name(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(picture(number))


def make_samples(folder: Path, count: int) -> Iterator[int]:
    """Write `count` samples and train_list.txt below `folder`; yields bytes per file written.

    The list comes last: a folder that has it is whole. Existing files are overwritten.
    """
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(_write, [folder] * count, range(count), chunksize=8)
    lines = "".join(f"{name(number)} {number % 64}\n" for number in range(count))
    partial = folder / f".{LIST}"
    partial.write_text(lines)
    partial.replace(folder / LIST)
