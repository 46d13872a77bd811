"""BERT's sequences: sample text, HDF5 shards, and their distribution over ranks."""

import hashlib
import re
from collections import Counter
from itertools import pairwise

import h5py
import numpy as np
import pytest
from loading import load, loaded

from perfkit.inputs import InputError, dataloader
from perfkit.inputs import samples as sample
from perfkit.inputs.data_set import digest, examine
from perfkit.inputs.sequences import FIELDS, Row, Sequences, stretch
from perfkit.models.bert import FIRST_WORD, VOCABULARY, predictions
from perfkit.request.resolve import resolve

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TEXTS = {
    f"text {number}": "".join(
        f"{ALPHABET[i * i % 26]}{ALPHABET[(i + number) % 26]}, " for i in range(60)
    )
    for number in range(3)
}
# Digest of the first 50 sequences of 64 tokens from TEXTS. A new digest means new sample data,
# whose results are not comparable with earlier ones.
DIGEST = "af6911f53d436ac4a982f6ec8e864d4958eaf7a869ddc18e3c8ff98c98f3ee9b"


def config(folder, **changes):
    values = {"model": "bert", "device": "cpu", "processes": 1, "batch_size": 2}
    values |= {"sequence_length": 16, "data_dir": str(folder), "input": "dataloader"}
    return resolve(values | {"dataloader_workers": 2} | changes)


def write(path, rows, first=0, length=16, **changes):
    """Write a shard whose row n holds only the id 1000 + first + n."""
    ids = np.arange(1000 + first, 1000 + first + rows, dtype=np.int32)
    values = {
        "input_ids": np.tile(ids[:, None], (1, length)),
        "segment_ids": np.zeros((rows, length), np.int8),
        "input_mask": np.ones((rows, length), np.int8),
        "masked_lm_positions": np.ones((rows, 3), np.int32),
        "masked_lm_ids": np.full((rows, 3), 1000, np.int32),
        "next_sentence_labels": np.zeros(rows, np.int8),
    }
    with h5py.File(path, "w") as file:
        for name, array in (values | changes).items():
            if array is not None:
                file.create_dataset(name, data=array, compression="gzip")


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences")
    assert len([*sample.make_sequences(folder, 4096, 128)]) == 4096
    return folder


@pytest.fixture(scope="module")
def arrays(shard):
    return Sequences(config(shard, sequence_length=128)).read(0)[1]


@pytest.fixture(scope="module")
def hidden(arrays):
    """The number of masked tokens of each sequence."""
    return (arrays["masked_lm_ids"] > 0).sum(axis=1)


@pytest.fixture(scope="module")
def guessed(arrays):
    """The shown tokens and the labels of all masked tokens."""
    shown = np.take_along_axis(arrays["input_ids"], arrays["masked_lm_positions"], 1)
    used = arrays["masked_lm_ids"] > 0
    return shown[used], arrays["masked_lm_ids"][used]


def test_sequences_have_the_bert_format(arrays):
    for ids, segments, mask in zip(
        arrays["input_ids"], arrays["segment_ids"], arrays["input_mask"], strict=True
    ):
        first, last = np.flatnonzero(ids == sample.SEP)
        assert np.flatnonzero(ids == sample.CLS).tolist() == [0]
        assert 1 < first < last - 1
        assert np.array_equal(mask, np.arange(128) <= last)
        assert np.array_equal(segments, (np.arange(128) > first) & (mask == 1))
        words = ids[1:last][ids[1:last] != sample.SEP]
        assert np.all((words >= FIRST_WORD) | (words == sample.MASK))
        assert not ids[last + 1 :].any()


def test_sequence_lengths_and_random_pairs_have_the_expected_shares(arrays):
    lengths, random = arrays["input_mask"].sum(axis=1), arrays["next_sentence_labels"]
    assert np.mean(lengths == 128) > 0.75
    assert np.mean(lengths < 64) > 0.02
    assert set(random.tolist()) == {0, 1}
    assert abs(random.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(random))


def test_15_percent_of_the_tokens_are_masked_and_at_most_20(arrays, hidden):
    words = arrays["input_mask"].sum(axis=1) - 3
    assert np.all(np.abs(hidden - 0.15 * words) <= 0.5 + (words < 7))
    assert 1 <= hidden.min() <= hidden.max() <= 20
    assert abs(hidden.sum() / words.sum() - 0.15) < 0.003
    assert [predictions(length) for length in (16, 64, 128, 512)] == [16, 20, 20, 80]


def test_masked_positions_are_sorted_and_zero_padded(arrays, hidden):
    for positions, ids, size in zip(
        arrays["masked_lm_positions"], arrays["masked_lm_ids"], hidden, strict=True
    ):
        assert np.all(np.diff(positions[:size]) > 0)
        assert positions[0] > 0
        assert not positions[size:].any()
        assert not ids[size:].any()
    assert set(arrays["masked_lm_positions"].ravel().tolist()) == set(range(127))


def test_masked_tokens_are_80_percent_mask_10_random_10_unchanged(guessed):
    shown, words = guessed
    # Five standard deviations; a random token rarely equals the label by chance.
    bounds = 5 * np.sqrt(0.8 * 0.2 / len(words)), 5 * np.sqrt(0.1 * 0.9 / len(words))
    is_mask = shown == sample.MASK
    assert abs(np.mean(is_mask) - 0.8) < bounds[0]
    assert abs(np.mean(shown == words) - 0.1) < bounds[1] + 0.001
    assert abs(np.mean(~is_mask & (shown != words)) - 0.1) < bounds[1] + 0.001
    assert len(set(words.tolist())) > 2000


def test_pairs_labelled_as_consecutive_are_consecutive():
    texts = [np.arange(1000 * n, 1000 * n + 300) for n in range(1, 4)]
    made = sample.pairs(texts, 60, np.random.PCG64(1))
    for first, second, is_random in (next(made) for _ in range(500)):
        assert np.all(np.diff(first) == 1)
        assert np.all(np.diff(second) == 1)
        assert 2 <= len(first) + len(second) <= 60
        same_text = first[0] // 1000 == second[0] // 1000
        assert is_random != same_text
        assert is_random or second[0] == first[-1] + 1


def test_labels_restore_the_original_text():
    [text] = sample.documents({"only": "One two, three four! " * 40})
    ids = np.concatenate([[sample.CLS], text[:100], [sample.SEP]])
    masked, positions, words = sample.mask(ids, 20, 6, np.random.PCG64(2))
    restored = masked.copy()
    restored[positions] = words
    assert np.array_equal(restored, ids)
    assert len(words) == 15
    assert not np.array_equal(masked, ids)


def test_token_ids_are_ordered_by_frequency():
    texts = {"b": "Is it? It is.\n*****\n", "a": "it's it"}
    first, second = sample.documents(texts)
    # it: 4 times, is: twice, then ' . ? and s once each, in alphabetical order.
    assert first.tolist() == [999, 1001, 1004, 999]
    assert second.tolist() == [1000, 999, 1003, 999, 1000, 1002]
    words = Counter(np.concatenate(sample.documents(sample.topics)).tolist())
    assert min(words) == FIRST_WORD
    assert 3000 < len(words) < VOCABULARY - FIRST_WORD


def test_sample_sequences_are_reproducible(tmp_path, shard):
    assert len([*sample.make_sequences(tmp_path, 4096, 128)]) == 4096
    assert (tmp_path / sample.SHARD).read_bytes() == (shard / sample.SHARD).read_bytes()
    made = sample.sequences(TEXTS, 64)
    rows = [next(made) for _ in range(50)]
    content = b"".join(row[name].astype("<i8").tobytes() for row in rows for name in FIELDS)
    assert hashlib.sha256(content).hexdigest() == DIGEST


def test_an_interrupted_shard_is_removed(tmp_path):
    making = sample.make_sequences(tmp_path, 16, 128)
    next(making)
    making.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [16, 128, 512])
def test_sample_sequences_of_every_length_are_valid(tmp_path, length):
    assert len([*sample.make_sequences(tmp_path, 64, length)]) == 64
    wanted = config(tmp_path, sequence_length=length)
    assert len(examine(wanted)) == 64
    assert examine(wanted).sha256 == digest(wanted)


def test_the_digest_distinguishes_data_sets_of_the_same_size(tmp_path):
    digests = [digest(config(tmp_path))]
    for first in (0, 1):
        write(tmp_path / "a.hdf5", 4, first)
        digests.append(digest(config(tmp_path)))
    (tmp_path / "a.hdf5").rename(tmp_path / "b.h5")
    digests.append(digest(config(tmp_path)))
    assert digests[0] is None
    assert len(set(digests)) == 4
    assert digest(config(tmp_path, input="synthetic")) is None
    assert digest(config(tmp_path / "nowhere")) is None


def test_shards_are_sorted_by_name_and_other_files_ignored(tmp_path):
    for name, rows in (("b.hdf5", 3), ("a.h5", 2), ("c.hdf5", 4)):
        write(tmp_path / name, rows)
    (tmp_path / "readme.txt").touch()
    (tmp_path / ".sequences.hdf5.partial").touch()
    shards = Sequences(config(tmp_path))
    assert [file.name for file in shards.files] == ["a.h5", "b.hdf5", "c.hdf5"]
    assert shards.rows == [2, 3, 4]


WIDER = np.ones((4, 5), np.int32)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input_mask": None}, "input_mask: expected a dataset, found none"),
        ({"length": 512}, "input_ids: expected 4 x 16, found 4 x 512; sequence_length is 16"),
        ({"segment_ids": np.zeros((4, 15), int)}, "segment_ids: expected 4 x 16, found 4 x 15"),
        ({"masked_lm_ids": np.ones((4, 2), int)}, "masked_lm_ids: expected 4 x 3, found 4 x 2"),
        (
            {"masked_lm_positions": WIDER, "masked_lm_ids": WIDER},
            "masked_lm_positions: expected 4 x 3, found 4 x 5\n"
            r".*b\.hdf5: masked_lm_ids: expected 4 x 3, found 4 x 5$",
        ),
        ({"next_sentence_labels": np.zeros(3, int)}, "sentence_labels: expected 4, found 3"),
        ({"input_ids": np.ones((4, 16))}, "input_ids: expected whole numbers, found float64"),
        ({"rows": 0}, "input_ids: expected at least one row, found none"),
        ({"input_ids": np.full((4, 16), 30522)}, "input_ids: expected 0 to 30521, found 30522"),
        ({"masked_lm_ids": np.full((4, 3), -1)}, "lm_ids: expected 0 to 30521, found -1"),
        ({"masked_lm_positions": np.full((4, 3), 16)}, "positions: expected 0 to 15, found 16"),
        ({"segment_ids": np.full((4, 16), 2)}, "segment_ids: expected 0 to 1, found 2 to 2"),
        ({"next_sentence_labels": np.full(4, -1)}, "_labels: expected 0 to 1, found -1"),
    ],
)
def test_an_invalid_shard_is_rejected_with_file_and_dataset(tmp_path, changes, expected):
    write(tmp_path / "a.hdf5", 4)
    write(tmp_path / "b.hdf5", **{"rows": 4} | changes)
    with pytest.raises(InputError, match=rf"b\.hdf5: .*{expected}"):
        examine(config(tmp_path))


@pytest.mark.parametrize("content", ["half", "hello", ""])
def test_a_truncated_or_foreign_file_is_rejected(tmp_path, content):
    write(tmp_path / "a.hdf5", 400)
    whole = (tmp_path / "a.hdf5").read_bytes()
    (tmp_path / "a.hdf5").write_bytes(
        whole[: len(whole) // 2] if content == "half" else content.encode()
    )
    with pytest.raises(InputError, match=r"a\.hdf5: can't be read as HDF5: .*(truncated|sign)"):
        examine(config(tmp_path))


@pytest.mark.parametrize(
    ("make", "expected"),
    [(True, r"expected shards \(\*.hdf5 or \*.h5\), found none"), (False, "No such file")],
)
def test_a_folder_without_shards_is_rejected(tmp_path, make, expected):
    folder = tmp_path / "shards"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match=rf"{folder}: {expected}"):
        examine(config(folder))


def test_the_report_of_invalid_shards_is_limited(tmp_path):
    for number in range(Sequences.checked):
        (tmp_path / f"{number}.hdf5").touch()
    with pytest.raises(InputError, match=f"and {Sequences.checked - 5} more") as refused:
        examine(config(tmp_path))
    assert len(str(refused.value).splitlines()) == 6


@pytest.mark.usefixtures("processes")
def test_the_dataloader_yields_shard_rows_as_int64(shard, arrays):
    wanted = config(shard, batch_size=4, sequence_length=128)
    [batch] = loaded(wanted, 1)
    assert [field.shape for field in batch] == [*[(4, 128)] * 3, *[(4, 20)] * 2, (4, 1)]
    assert {field.dtype for field in batch} == {np.dtype(np.int64)}
    rows = [index.row for index in next(Sequences(wanted).batches(0, 1000))]
    for name, field in zip(FIELDS, batch, strict=True):
        assert np.array_equal(field, arrays[name][rows].reshape(4, -1))


def test_ranks_read_disjoint_rows_in_equal_numbers(tmp_path):
    for number, (first, rows) in enumerate(((0, 7), (7, 12), (19, 5))):
        write(tmp_path / f"{number}.hdf5", rows, first)
    data = Sequences(config(tmp_path, processes=2, batch_size=3))
    batches = [data.batches(rank, 4) for rank in (0, 1)]
    rows = [row for rank in batches for _ in range(4) for row in next(rank)]
    assert sorted(int(data[row][0][0]) - 1000 for row in rows) == list(range(24))


def test_epochs_reorder_the_same_rows():
    shards = [7, 5]
    parts = [stretch(shards, 0, part, 4) for part in range(4)]
    epochs = [[next(part) for part in parts for _ in range(3)] for _ in range(3)]
    for rows in epochs:
        assert len(set(rows)) == 12
    assert epochs[0] != epochs[1] != epochs[2]
    assert next(stretch(shards, 1, 0, 4)) in epochs[0]


def test_a_process_finishes_a_shard_before_the_next():
    shards = [10, 20, 30, 40, 10, 20, 30, 40]
    for part in range(3):
        rows = stretch(shards, 0, part, 3)
        order = [next(rows).shard for _ in range(66)]
        changes = sum(a != b for a, b in pairwise(order))
        assert changes == len(set(order)) - 1 < 7


def test_a_process_reads_each_shard_once(tmp_path, monkeypatch):
    for number in range(3):
        write(tmp_path / f"{number}.hdf5", 8, 8 * number)
    dataset = Sequences(config(tmp_path, dataloader_workers=1))
    indices = dataset.batches(0, 12)
    read, real = [], dataset.read
    monkeypatch.setattr(dataset, "read", lambda shard: read.append(shard) or real(shard))
    seen = [int(dataset[index][0][0]) for _ in range(12) for index in next(indices)]
    assert sorted(seen) == list(range(1000, 1024))
    assert sorted(read) == [0, 1, 2]


def test_batches_are_endless_and_full(tmp_path):
    write(tmp_path / "a.hdf5", 7)
    indices = Sequences(config(tmp_path, batch_size=3, dataloader_workers=4)).batches(0, 2)
    batches = [next(indices) for _ in range(40)]
    assert {len(batch) for batch in batches} == {3}
    assert {index.row for batch in batches for index in batch} == set(range(7))


def test_a_data_set_smaller_than_one_step_is_rejected(tmp_path):
    write(tmp_path / "a.hdf5", 7)
    with pytest.raises(InputError, match="7 sequences, but one step of 2 x 4 needs 8"):
        next(dataloader.batches(config(tmp_path, processes=2, batch_size=4), 0))


def test_a_damaged_shard_is_reported_on_read(tmp_path):
    path = tmp_path / "a.hdf5"
    write(path, 400)
    with h5py.File(path) as file:
        damaged = file["input_ids"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[damaged : damaged + 20] = bytes(20)
    path.write_bytes(content)
    # The file opens, and its size matches its headers.
    shards = Sequences(config(tmp_path))
    assert shards.rows == [400]
    with pytest.raises(InputError, match=r"a\.hdf5: can't be read as HDF5: .*filter"):
        shards.read(0)


@pytest.mark.usefixtures("processes")
def test_the_dataloader_reports_invalid_values_in_later_rows(tmp_path):
    ids = np.full((400, 16), 1000)
    ids[399] = 40_000
    write(tmp_path / "a.hdf5", 400, input_ids=ids)
    examine(config(tmp_path))
    ended = load(config(tmp_path), 1)
    assert ended.returncode == 1
    error = r"InputError: \S+/a\.hdf5: input_ids: expected 0 to 30521, found 1000 to 40000\n$"
    assert re.search(error, ended.stderr.decode())


def test_an_in_process_dataset_reports_read_errors(tmp_path):
    write(tmp_path / "a.hdf5", 4)
    dataset = dataloader.Samples(Sequences(config(tmp_path)))
    (tmp_path / "a.hdf5").unlink()
    with pytest.raises(InputError, match=r"a\.hdf5: can't be read as HDF5: .*No such file"):
        dataset[Row(0, 0)]
    assert "a.hdf5" in dataset.errors.get()
