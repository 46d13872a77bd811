"""The failure code of an exception that ends a rank, and its message."""

import errno
import os

import pytest

from perfkit.inputs import InputError
from perfkit.timing.failure import ConfigMismatchError, classify
from perfkit.timing.raw_file import UNWRITABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigMismatchError, "config_mismatch"),
        (InputError, "bad_input"),
    ],
)
def test_an_exception_with_a_code_keeps_it_and_its_message(error, code):
    assert classify(error("why it\n has ended")) == (code, "why it has ended")


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 98.00 GiB.",
        "CUDNN_STATUS_ALLOC_FAILED at dynload",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "OOM when allocating tensor with shape[4096,3,224,224] and type float",
        "[Errno 12] Cannot allocate memory",
        f"{'C++ traceback ' * 50} ResourceExhaustedError",
    ],
)
def test_out_of_memory_errors_of_every_library_are_recognised(message):
    assert classify(RuntimeError(message)).code == "out_of_memory"


def test_an_out_of_memory_error_of_pytorch_is_recognised():
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55, dtype=torch.int8)
    assert classify(raised.value).code == "out_of_memory"


def test_an_out_of_memory_error_of_python_is_recognised():
    assert classify(MemoryError()) == ("out_of_memory", "MemoryError")


@pytest.mark.parametrize("number", UNWRITABLE)
def test_a_disk_that_can_not_be_written_is_an_io_error(number):
    text = os.strerror(number)
    assert classify(OSError(number, text)) == ("io_error", f"[Errno {number}] {text}")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("CUDNN_STATUS_BAD_PARAM"), "RuntimeError: CUDNN_STATUS_BAD_PARAM"),
        (ValueError("why"), "ValueError: why"),
        (KeyboardInterrupt(), "KeyboardInterrupt: KeyboardInterrupt"),
        (
            FileNotFoundError(errno.ENOENT, "No such file"),
            "FileNotFoundError: [Errno 2] No such file",
        ),
    ],
)
def test_another_error_is_the_workers_own_and_named_by_its_type(error, message):
    assert classify(error) == ("worker_error", message)
