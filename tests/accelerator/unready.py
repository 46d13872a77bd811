"""Use memory of the fake accelerator before it is ready, and after; prints JSON.

`early` and `waited` are sums of ones that another stream copies to the device: read at once,
and after waiting for the copy. `new` and `freed` are values in memory that was just allocated,
and in memory that a deleted tensor had.
"""

import ctypes
import json
import os

import paddle

COPY_SECONDS = 0.3
COUNT = 5_000_000
library = ctypes.CDLL(f"{os.environ['CUSTOM_DEVICE_ROOT']}/libfake.so")
library.fake_copy_seconds.argtypes = [ctypes.c_double]


def sum_of_copy(host, *, wait):
    """Copy a tensor in another stream and sum it in this one."""
    place = paddle.framework._current_expected_place_()
    other = paddle.device.Stream()
    library.fake_copy_seconds(COPY_SECONDS)
    with paddle.device.stream_guard(other):
        copy = host._copy_to(place, False)
        copied = other.record_event()
    if wait:
        paddle.device.current_stream().wait_event(copied)
    total = copy.sum()
    library.fake_copy_seconds(0.0)
    return float(total)


def main():
    paddle.set_device("fake")
    host = paddle.ones([COUNT]).cpu()
    new = float(paddle.empty([COUNT // 2])[0])
    deleted = paddle.ones([COUNT // 4])
    del deleted
    freed = float(paddle.empty([COUNT // 4])[0])
    early = sum_of_copy(host, wait=False)
    waited = sum_of_copy(host, wait=True)
    print(json.dumps({"new": new, "freed": freed, "early": early, "waited": waited}))


if __name__ == "__main__":
    main()
