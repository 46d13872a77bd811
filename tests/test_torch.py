"""PyTorch specifics: memory formats, fused optimizers, compiler."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from narrow import replace_sizes
from sides import equal, side_of, step

torch = pytest.importorskip("torch")
# ruff: noqa: E402 - PyTorch is optional; the imports below need it
from perfkit.core.frameworks.torch.backend import align_gradients
from perfkit.core.frameworks.torch.layers import Network
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.core.frameworks.facts import NodeRank
from perfkit.core.frameworks.torch import FRAMEWORK, backend
from perfkit.core.worker import rank as worker
from perfkit.training.models import MODELS

# torch.compile itself uses deprecated functions of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:::torch.*")
SIDE = side_of("torch")
config = SIDE.config
batch = SIDE.batch


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
def test_nhwc_keeps_channels_last_in_every_layer(narrow, model):
    network = SIDE.trainer(model, layout="NHWC").network
    channels_last = []

    def record(_layer, _inputs, output):
        is_nhwc = output.is_contiguous(memory_format=torch.channels_last)
        channels_last.append(is_nhwc)

    convolutions = [part for part in network.modules() if isinstance(part, torch.nn.Conv2d)]
    for layer in convolutions:
        layer.register_forward_hook(record)
    images = torch.randn(2, 64, 64, 3)
    with torch.no_grad():
        network(images)
    assert channels_last == [True] * len(convolutions)


def test_an_overflow_in_the_first_step_leaves_no_uninitialized_momentum(narrow, monkeypatch):
    """On an overflow a fused kernel writes nothing, not even the first step's buffers, which
    PyTorch allocates by empty_like; here they are filled with NaN."""
    empty_like = torch.empty_like

    def filled_like(tensor, *rest, **named):
        memory = empty_like(tensor, *rest, **named)
        if memory.is_floating_point():
            memory.fill_(float("nan"))
        return memory

    monkeypatch.setattr(torch, "empty_like", filled_like)
    inspector = SIDE.inspector("vgg16", precision="amp")
    trainer = inspector.trainer
    trainer.backward(batch("vgg16"))
    first = next(trainer.network.parameters())
    first.grad[0] = float("inf")
    trainer.update()
    for _ in range(2):
        step(trainer, batch("vgg16"))
    assert trainer.skipped_steps == 1
    for weights in inspector.weights().values():
        assert np.isfinite(weights).all()


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({"precision": "amp"}, False),
        ({"precision": "amp", "disable_tuning": "fused_optimizer"}, True),
        ({"precision": "bf16", "disable_tuning": "fused_optimizer"}, False),
    ],
)
def test_an_update_waits_for_the_device_if_the_loss_scaler_reads_overflows(
    narrow, monkeypatch, settings, waits
):
    trainer = SIDE.trainer("vgg16", **settings)
    trainer.backward(SIDE.batch("vgg16"))
    read = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda *each: read.append(1) or item(*each))
    trainer.update()
    assert bool(read) == waits == trainer.waits_in_update


def test_clipping_overflowing_gradients_leaves_weights_unchanged(narrow):
    inspector = SIDE.inspector("gpt", precision="amp")
    trainer = inspector.trainer
    before = inspector.weights()
    for parameter in trainer.network.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    trainer.scaler.scale(torch.zeros(()))
    trainer.update()
    assert trainer.skipped_steps == 1
    assert equal(inspector.weights(), before)


def test_channels_last_gradients_of_nchw_networks_are_aligned(narrow):
    """torch.compile returns them for kernels of one pixel."""
    network = SIDE.trainer(layout="NCHW").network
    expected = {}
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
        expected[parameter] = parameter.grad.clone()
        if parameter.shape[2:] == (1, 1):
            channels = parameter.shape[1]
            strides = (channels, 1, channels, channels)
            parameter.grad = parameter.grad.as_strided(parameter.shape, strides)
            assert parameter.grad.stride() != parameter.stride()
    align_gradients(network.parameters())
    for parameter, gradient in expected.items():
        assert parameter.grad.stride() == parameter.stride()
        assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"memory_format": "channels_last", "execution": "eager", "optimizer": "fused"}),
        ({"layout": "NCHW"}, {"memory_format": "contiguous"}),
        ({"execution": "static"}, {"execution": "torch.compile"}),
        ({"disable_tuning": "all"}, {"optimizer": "PyTorch's default"}),
    ],
)
def test_reported_settings_match_network_and_optimizer(narrow, changes, expected):
    settings = SIDE.inspector(**changes).settings()
    assert settings.items() >= expected.items()


@pytest.mark.parametrize(("disabled", "on"), [("", True), ("all", False)])
def test_gpu_settings_are_applied_unless_disabled(monkeypatch, disabled, on):
    """CUDA calls are stubbed; PyTorch's own switches are used."""
    for name in ("set_device", "init"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    cuda = torch.backends.cuda
    switches = [cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_cudnn_sdp]
    benchmark = torch.backends.cudnn.benchmark
    on_gpu = config(device="gpu", gpus=1, processes=1, disable_tuning=disabled)
    try:
        backend.open_device(on_gpu)
        assert torch.backends.cudnn.benchmark == on
        assert cuda.flash_sdp_enabled() == on
        assert cuda.mem_efficient_sdp_enabled() == on
        assert cuda.cudnn_sdp_enabled() == on
        assert cuda.math_sdp_enabled()
    finally:
        torch.backends.cudnn.benchmark = benchmark
        for switch in switches:
            switch(True)


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
    code, _message = worker.classify(RuntimeError(message))
    assert code == "out_of_memory"


def test_an_out_of_memory_error_of_pytorch_is_recognised():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55, dtype=torch.int8)
    code, _message = worker.classify(raised.value)
    assert code == "out_of_memory"


def test_another_error_of_a_library_is_not_out_of_memory():
    code, _message = worker.classify(RuntimeError("CUDNN_STATUS_BAD_PARAM"))
    assert code == "worker_error"


def test_the_loss_of_a_batch_without_a_label_is_zero():
    scores = torch.ones(2, 5)
    nothing = torch.zeros(2, dtype=torch.int64)
    loss = Network.cross_entropy(None, scores, nothing, ignored=0)
    assert loss.item() == 0.0


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("model", "layers"), [("vgg16", 2), ("bert", 1 + 3 * 2)])
def test_dropout_has_the_same_places_and_rates_as_in_paddle(narrow, monkeypatch, model, layers):
    paddle = side_of("paddle")
    ours = torch.nn.functional
    theirs = sys.modules["paddle"].nn.functional
    attend = ours.scaled_dot_product_attention
    of_torch = []
    of_paddle = []

    def counting(drop, rates_and_sizes):
        def dropped(x, p, *rest, **named):
            size = math.prod(x.shape)
            rates_and_sizes.append((float(p), size))
            return drop(x, p, *rest, **named)

        return dropped

    def attending(query, key, value, *, dropout_p, **named):
        queries = math.prod(query.shape[:-1])
        weights = queries * key.shape[-2]
        of_torch.append((dropout_p, weights))
        return attend(query, key, value, dropout_p=dropout_p, **named)

    monkeypatch.setattr(ours, "dropout", counting(ours.dropout, of_torch))
    monkeypatch.setattr(ours, "scaled_dot_product_attention", attending)
    monkeypatch.setattr(theirs, "dropout", counting(theirs.dropout, of_paddle))
    SIDE.inspector(model).predict(batch(model))
    paddle.inspector(model).predict(paddle.batch(model))
    assert of_torch == of_paddle
    assert len(of_torch) == layers


READING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")
"""PyTorch's operators whose result a host must read; on a GPU, each waits for the device."""


class HostReads(TorchDispatchMode):
    """Collects the operators called within a block that make the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.operators = 0

    def __torch_dispatch__(self, operator, _types, args=(), kwargs=None):
        self.operators += 1
        name = operator.name().partition("::")[2].partition(".")[0]
        if name in READING:
            self.names.append(name)
        return operator(*args, **(kwargs or {}))


def host_reads(trainer, batch):
    """Return the reads in a step, after a first step that may initialize."""
    trainer.backward(batch)
    trainer.update()
    with HostReads() as reads:
        trainer.backward(batch)
        trainer.update()
    assert reads.operators > 100
    return reads.names


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", FRAMEWORK.supports["precision"])
def test_a_step_reads_nothing_back_to_the_host(narrow, model, precision):
    trainer = SIDE.trainer(model, precision=precision)
    assert host_reads(trainer, batch(model)) == []


@pytest.mark.parametrize("read", [float, bool, Tensor.item, Tensor.nonzero])
def test_a_read_within_a_step_is_noticed(narrow, monkeypatch, read):
    trainer = SIDE.trainer("gpt")
    scale = trainer.scaler.scale

    def reading(loss):
        read(loss.detach())
        return scale(loss)

    monkeypatch.setattr(trainer.scaler, "scale", reading)
    assert len(host_reads(trainer, batch("gpt"))) == 1


def test_loss_scaling_reads_the_overflow_of_an_optimizer_that_is_not_fused(narrow):
    trainer = SIDE.trainer("vgg16", precision="amp", disable_tuning="fused_optimizer")
    assert host_reads(trainer, batch("vgg16")) == ["_local_scalar_dense"]


OVERLAP = """
import sys
from functools import partial

from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, sys.argv[1])
from narrow import replace_sizes
from sides import side_of, step

replace_sizes(setattr)
side = side_of("torch")
# Small buckets, so that a narrow network has several.
side.backend.DistributedDataParallel = partial(DistributedDataParallel, bucket_cap_mb=1)
config = side.config("vgg16", processes=2, batch_size=4, image_size=64, execution="static")
side.backend.open_device(config)
trainer = side.backend.Trainer(config)
batch = side.batch("vgg16", size=4, image_size=64)
for _ in range(2):
    # Buckets are final after the first step.
    step(trainer, batch)
with profile(activities=[ProfilerActivity.CPU]) as recorder:
    trainer.backward(batch)
parts = [e for e in recorder.events() if e.name == "CompiledFunctionBackward"]
end = max(part.time_range.end for part in parts)
sent = [e.time_range.start for e in recorder.events() if e.name.startswith("gloo:")]
print(f"early: {sum(at < end for at in sent)} of {len(sent)}", flush=True)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_compiled_networks_overlap_communication_with_the_backward_pass(tmp_path):
    """torch.compile splits its graph at the buckets of DistributedDataParallel."""
    script = tmp_path / "overlap.py"
    script.write_text(OVERLAP)
    tests = Path(__file__).parent
    run = [sys.executable, str(script), str(tests)]
    two = config(processes=2)
    command = FRAMEWORK.launch_command(two, NodeRank(), tmp_path, "job", run)
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=200)
    output = ""
    for log in tmp_path.glob("*/attempt_0/0/std*.log"):
        output += log.read_text()
    printed = re.search(r"early: (\d+) of (\d+)", output)
    early = int(printed[1])
    buckets = int(printed[2])
    assert 0 < early < buckets
