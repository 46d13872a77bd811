"""GPT-2's token files: sample text, both layouts, and the frameworks' data loaders."""

import resource
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from loading import loaded

from perfkit.core.inputs import InputError, samples
from perfkit.core.inputs.data_set import digest, examine
from perfkit.core.inputs.sequences import HEADER, MAGIC, ShardRow
from perfkit.core.models.gpt import END_OF_TEXT, VOCABULARY
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.resolve import resolve


def config(folder, **changes):
    values = {"model": "gpt", "device": "cpu", "batch_size": 2, "sequence_length": 16}
    values |= {"data_dir": str(folder), "input": "dataloader", "dataloader_workers": 2}
    return resolve(values | changes)


def write(path, tokens):
    path.parent.mkdir(exist_ok=True)
    np.asarray(tokens, "<u2").tofile(path)


def header(version=1):
    numbers = np.zeros(HEADER // 2, "<i4")
    numbers[:2] = MAGIC, version
    return numbers.view("<u2")


def test_sample_tokens_are_text_bytes_with_end_markers(tmp_path):
    written = sum(samples.make_tokens(tmp_path, 3000, 256))
    assert written == 3000 * 256 * 2
    tokens = np.fromfile(tmp_path / samples.TOKENS, "<u2")
    assert len(tokens) == 3000 * 256 + 1
    first, second, *_others = sorted(topics)
    begin = [*topics[first].encode(), END_OF_TEXT, *topics[second].encode(), END_OF_TEXT]
    assert tokens[: len(begin)].tolist() == begin


def test_the_text_of_sample_tokens_is_repeated(tmp_path):
    list(samples.make_tokens(tmp_path, 3000, 256))
    tokens = np.fromfile(tmp_path / samples.TOKENS, "<u2")
    length = sum(len(text.encode()) + 1 for text in topics.values())
    assert np.array_equal(tokens[length:], tokens[:-length])


def test_sample_tokens_are_reproducible(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        list(samples.make_tokens(folder, 3000, 256))
    assert (first / samples.TOKENS).read_bytes() == (second / samples.TOKENS).read_bytes()


def test_labels_are_the_next_tokens(tmp_path):
    write(tmp_path / "train.bin", range(100))
    data = examine(config(tmp_path))
    ids, labels = data[ShardRow(0, 2)]
    assert ids.tolist() == [*range(32, 48)]
    assert labels.tolist() == [*range(33, 49)]
    assert ids.dtype == labels.dtype == np.int64
    assert data.sha256 == digest(data.config)
    # 99 tokens have a next token: six blocks of 16; the rest is dropped.
    assert len(data) == 6


def test_a_file_with_a_header_is_read(tmp_path):
    write(tmp_path / "corpus_train_000001.bin", [*header(), *range(33)])
    data = examine(config(tmp_path))
    assert len(data) == 2
    ids, _labels = data[ShardRow(0, 0)]
    assert ids.tolist() == [*range(16)]


def test_more_files_than_a_process_may_open_are_read(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len([*Path("/proc/self/fd").iterdir()]) + 40
    for number in range(count):
        write(tmp_path / f"x_train_{number:03}.bin", [number] * 17)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        data = examine(config(tmp_path))
        for number in range(count):
            ids, _labels = data[ShardRow(number, 0)]
            assert ids[0] == number
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


SEVENTEEN = np.arange(17, dtype="<u2").tobytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SEVENTEEN + b"x", "expected 2 bytes a token, found 35 bytes"),
        (b"", "expected 2 bytes a token, found 0 bytes"),
        (SEVENTEEN[:-2], "expected at least 17 tokens .*, found 16"),
        (header(version=7).tobytes(), "expected header version 1, found 7"),
        (np.full(40, VOCABULARY, "<u2").tobytes(), "expected tokens 0 to 50303, found 50304"),
    ],
)
def test_an_invalid_token_file_is_rejected_by_name(tmp_path, content, expected):
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"train\.bin: .*{expected}"):
        examine(config(tmp_path))


def test_validation_files_are_ignored(tmp_path):
    write(tmp_path / "val.bin", range(40))
    write(tmp_path / "corpus_val_000000.bin", range(40))
    expected = r"expected token files \(\*train\*\.bin, .*\), found none"
    with pytest.raises(InputError, match=expected):
        examine(config(tmp_path))
    with pytest.raises(RequestError, match=r"token files .*; .*: perfkit samples --for gpt"):
        plan("gpt", {"data_dir": str(tmp_path), "device": "cpu"}, skip_checks=["machine"])
    write(tmp_path / "train.bin", range(40))
    (file,) = examine(config(tmp_path)).files
    assert file.name == "train.bin"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("framework", ["paddle", "torch"])
def test_the_dataloader_yields_blocks_of_the_file(tmp_path, framework):
    write(tmp_path / "train.bin", np.arange(64 * 16 + 1))
    for ids, labels in loaded(config(tmp_path, framework=framework), 3):
        assert ids.shape == labels.shape == (2, 16)
        assert np.all(ids[:, 0] % 16 == 0)
        assert np.array_equal(labels, ids + 1)


def test_more_tokens_than_positions_are_rejected():
    request = {"sequence_length": 1024, "device": "cpu", "input": "synthetic"}
    planned = plan("gpt", request, skip_checks=["machine"])
    assert planned.config.sequence_length == 1024
    with pytest.raises(RequestError, match="bert has 512 positions; at most 512"):
        plan("bert", request, skip_checks=["machine"])


def test_the_default_sequence_length_depends_on_the_device():
    on_cpu = resolve({"model": "gpt"}, gpus=0)
    on_gpu = resolve({"model": "gpt"}, gpus=1)
    assert on_cpu.sequence_length == 128
    assert on_gpu.sequence_length == 1024
