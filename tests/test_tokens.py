"""Token files: sample text, the layouts of GPT-2 and Llama, and the frameworks' loaders."""

import resource
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from loading import loaded

from perfkit.inputs import InputError, samples
from perfkit.inputs.data_set import examine
from perfkit.inputs.shards import ShardRow
from perfkit.inputs.tokens import GPT2, LLAMA3
from perfkit.measuring.request.resolve import resolve
from perfkit.training.models import END_OF_TEXT, GPT_SIZES


def config(folder, **changes):
    """Return the options that the inputs take."""
    made = resolved(folder, **changes)
    return made.work.options(made)


def resolved(folder, **changes):
    values = {"model": "gpt", "device": "cpu", "batch_size": 2, "sequence_length": 16}
    values |= {"data_dir": str(folder), "input": "dataloader", "dataloader_workers": 2}
    return resolve(values | changes)


def write(path, tokens):
    path.parent.mkdir(exist_ok=True)
    np.asarray(tokens, "<u2").tofile(path)


def header(tokens, layout=GPT2, **changes):
    """Return the bytes of a header, which are checked against llm.c's description below."""
    return layout._replace(**changes).header(tokens)


def write_wide(path, tokens):
    path.parent.mkdir(exist_ok=True)
    ids = np.asarray(tokens, "<u4")
    path.write_bytes(header(len(ids), LLAMA3) + ids.tobytes())


def wide_tokens(folder, **changes):
    """Open a folder of 32-bit token files for Llama and check its rows."""
    return examine(config(folder, model="llama", **changes))


def test_sample_tokens_are_text_bytes_with_end_markers(tmp_path):
    written = sum(samples.make_tokens(tmp_path, 3000, 256))
    assert written == 3000 * 256 * 2
    tokens = np.fromfile(tmp_path / samples.TOKENS, "<u2")
    assert len(tokens) == 3000 * 256 + 1
    first, second, *_others = sorted(topics)
    begin = [*topics[first].encode(), END_OF_TEXT, *topics[second].encode(), END_OF_TEXT]
    assert tokens[: len(begin)].tolist() == begin


def test_labels_are_the_next_tokens(tmp_path):
    write(tmp_path / "train.bin", range(100))
    data = examine(config(tmp_path))
    ids, labels = data[ShardRow(0, 2)]
    assert ids.tolist() == [*range(32, 48)]
    assert labels.tolist() == [*range(33, 49)]
    assert ids.dtype == labels.dtype == np.int64
    assert data.sha256 == resolved(tmp_path).work.data_sha256
    # 99 tokens have a next token: six blocks of 16; the rest is dropped.
    assert len(data) == 6


def test_a_file_with_a_header_is_read(tmp_path):
    tokens = np.arange(33, dtype="<u2")
    file = tmp_path / "corpus_train_000001.bin"
    file.write_bytes(header(33) + tokens.tobytes())
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
        (SEVENTEEN[:-2], "expected at least 17 tokens .*, found 16"),
        (header(18) + SEVENTEEN, "expected 1060 bytes for the 18 tokens .*, found 1058 bytes"),
        (header(17, LLAMA3) + 2 * SEVENTEEN, r"16 bits a token, found 32 \(header 20240801\)"),
        (
            np.full(40, GPT_SIZES["124M"].vocabulary, "<u2").tobytes(),
            "expected tokens 0 to 50303, found 50304",
        ),
    ],
)
def test_an_invalid_token_file_is_rejected_by_name(tmp_path, content, expected):
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"train\.bin: .*{expected}"):
        examine(config(tmp_path))


WIDE_SEVENTEEN = np.arange(17, dtype="<u4").tobytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            20 * WIDE_SEVENTEEN,
            r"header of 1024 bytes \(magic number 20240801, version 7.* found none; without",
        ),
        (header(17) + SEVENTEEN, r"32 bits a token, found 16 \(header 20240520\)"),
        (header(17, LLAMA3, version=1) + WIDE_SEVENTEEN, "header version 7, found 1"),
        (header(34, LLAMA3) + WIDE_SEVENTEEN, "1160 bytes for the 34 tokens .*, found 1092"),
    ],
)
def test_a_file_that_has_not_32_bit_tokens_behind_a_header_is_refused(
    tmp_path, content, expected
):
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"train\.bin: .*{expected}"):
        wide_tokens(tmp_path)


def test_ids_above_16_bits_are_read_from_wide_files(tmp_path):
    write_wide(tmp_path / "x_train_0.bin", 128_000 + np.arange(100))
    data = wide_tokens(tmp_path)
    ids, labels = data[ShardRow(0, 2)]
    assert ids.tolist() == [*range(128_032, 128_048)]
    assert labels.tolist() == [*range(128_033, 128_049)]
    assert ids.dtype == labels.dtype == np.int64
    # 99 tokens have a next token: six blocks of 16.
    assert len(data) == 6


def test_ids_outside_llamas_vocabulary_are_refused(tmp_path):
    write_wide(tmp_path / "x_train_0.bin", np.arange(100))
    write_wide(tmp_path / "x_train_1.bin", [*range(48), 128_256, *range(17)])
    with pytest.raises(InputError, match=r"0 to 128255, found 128256 among tokens 32 to 48"):
        wide_tokens(tmp_path)


def test_the_header_is_llm_cs():
    """Described in llm.c, dev/data/data_common.py."""
    integers = np.frombuffer(header(1_000_000, LLAMA3), "<i4")
    assert len(integers) == 256
    assert integers[:3].tolist() == [20_240_801, 7, 1_000_000]
    assert not integers[3:].any()


def test_wide_sample_tokens_are_the_same_text_behind_a_header(tmp_path):
    narrow, wide = tmp_path / "narrow", tmp_path / "wide"
    list(samples.make_tokens(narrow, 40, 256))
    assert sum(samples.make_wide_tokens(wide, 40, 256)) == 40 * 256 * 4
    data = wide_tokens(wide, sequence_length=256)
    assert len(data) == 40
    tokens = np.fromfile(wide / samples.TOKENS, "<u4", offset=1024)
    text = np.fromfile(narrow / samples.TOKENS, "<u2")
    text[text == END_OF_TEXT] = 256
    assert np.array_equal(tokens, text)


def test_validation_files_are_ignored(tmp_path):
    write(tmp_path / "val.bin", range(40))
    write(tmp_path / "corpus_val_000000.bin", range(40))
    expected = r"expected token files \(\*train\*\.bin, .*\), found none"
    with pytest.raises(InputError, match=expected):
        examine(config(tmp_path))
    write(tmp_path / "train.bin", range(40))
    (file,) = examine(config(tmp_path)).files
    assert file.name == "train.bin"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("framework", "model", "written"),
    [("paddle", "gpt", write), ("torch", "llama", write_wide)],
)
def test_the_dataloader_yields_blocks_of_the_file(tmp_path, framework, model, written):
    written(tmp_path / "train.bin", np.arange(64 * 16 + 1))
    for ids, labels in loaded(config(tmp_path, framework=framework, model=model), 3):
        assert ids.shape == labels.shape == (2, 16)
        assert np.all(ids[:, 0] % 16 == 0)
        assert np.array_equal(labels, ids + 1)


def test_the_default_sequence_length_depends_on_the_device():
    on_cpu = resolve({"model": "gpt"}, gpus=0)
    on_gpu = resolve({"model": "gpt"}, gpus=1)
    assert on_cpu.work.sequence_length == 128
    assert on_gpu.work.sequence_length == 1024
