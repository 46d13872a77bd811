"""BERT's sequences: sample text, HDF5 shards, and their distribution over ranks."""

import hashlib
import re
from itertools import groupby, islice

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading import load, loaded

from perfkit.inputs import InputError
from perfkit.inputs import samples as sample
from perfkit.inputs.data_set import examine
from perfkit.inputs.sequences import FIELDS, Sequences
from perfkit.inputs.shards import stretch
from perfkit.measuring.request.resolve import resolve
from perfkit.training.models import BERT_SIZE, predictions

# Digest of the first 50 sequences of 64 tokens. A new digest means new sample data,
# whose results are not comparable with earlier ones.
DIGEST = "6fd883cfad4cd260f793b0ab6f8fa0c1c81c1e89c56be9a426c97570b6838b31"


def config(folder, **changes):
    """Return the options that the inputs take."""
    made = resolved(folder, **changes)
    return made.work.options(made)


def resolved(folder, **changes):
    values = {
        "model": "bert",
        "device": "cpu",
        "processes": 1,
        "batch_size": 2,
        "sequence_length": 16,
        "data_dir": str(folder),
        "input": "dataloader",
        "dataloader_workers": 2,
    }
    return resolve(values | changes)


def write(path, rows, first=0, length=16, **changes):
    """Write a shard whose row n holds only the id 1000 + first + n."""
    ids = np.arange(1000 + first, 1000 + first + rows, dtype=np.int32)
    per_token = (rows, length)
    per_masked_word = (rows, 3)
    fields = {
        "input_ids": np.tile(ids[:, None], (1, length)),
        "segment_ids": np.zeros(per_token, np.int8),
        "input_mask": np.ones(per_token, np.int8),
        "masked_lm_positions": np.ones(per_masked_word, np.int32),
        "masked_lm_ids": np.full(per_masked_word, 1000, np.int32),
        "next_sentence_labels": np.zeros(rows, np.int8),
    }
    fields |= changes
    with h5py.File(path, "w") as file:
        for name, array in fields.items():
            if array is not None:
                file.create_dataset(name, data=array, compression="gzip")


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences")
    make(folder, 4096, 128)
    return folder


def make(folder, count, length):
    """Make sample sequences."""
    written = [*sample.make_sequences(folder, count, length)]
    assert len(written) == count


@pytest.fixture(scope="module")
def arrays(shard):
    data = Sequences(config(shard, sequence_length=128))
    _count, arrays = data.read(0)
    return arrays


def test_sequences_have_the_bert_format(arrays):
    """[CLS] A [SEP] B [SEP]; the rest is 0."""
    numbers = np.arange(128)
    rows = zip(arrays["input_ids"], arrays["segment_ids"], arrays["input_mask"], strict=True)
    for ids, segments, mask in rows:
        starts = np.flatnonzero(ids == sample.CLS)
        assert starts.tolist() == [0]
        first, last = np.flatnonzero(ids == sample.SEP)
        assert 1 < first < last - 1
        assert np.array_equal(mask, numbers <= last)
        in_second = (numbers > first) & (numbers <= last)
        assert np.array_equal(segments, in_second)
        between = ids[1:last]
        words = between[between != sample.SEP]
        is_word = words >= BERT_SIZE.first_word
        is_mask = words == sample.MASK
        assert np.all(is_word | is_mask)
        assert not ids[last + 1 :].any()


@pytest.mark.parametrize(("length", "places"), [(16, 16), (128, 20), (512, 80)])
def test_the_places_for_masked_words_depend_on_the_length(length, places):
    assert predictions(length) == places


def test_a_masked_word_becomes_a_mask_or_a_random_word_or_stays(arrays):
    """80, 10 and 10 %, within five standard deviations; a random word rarely equals the label
    by chance."""
    used = arrays["masked_lm_ids"] > 0
    labels = arrays["masked_lm_ids"][used]
    at_places = np.take_along_axis(arrays["input_ids"], arrays["masked_lm_positions"], 1)
    inputs = at_places[used]
    is_mask = inputs == sample.MASK
    stays = inputs == labels
    is_random = ~is_mask & ~stays
    of_80_percent = 5 * np.sqrt(0.8 * 0.2 / len(labels))
    assert abs(np.mean(is_mask) - 0.8) < of_80_percent
    of_10_percent = 5 * np.sqrt(0.1 * 0.9 / len(labels)) + 0.001
    assert abs(np.mean(stays) - 0.1) < of_10_percent
    assert abs(np.mean(is_random) - 0.1) < of_10_percent
    different_labels = {*labels.tolist()}
    assert len(different_labels) > 2000


def test_sample_sequences_have_a_fixed_digest():
    digest = hashlib.sha256()
    for row in (sample.sequence(number, 64) for number in range(50)):
        for name in FIELDS:
            as_int64 = row[name].astype("<i8")
            digest.update(as_int64.tobytes())
    assert digest.hexdigest() == DIGEST


def test_an_interrupted_shard_is_removed(tmp_path):
    making = sample.make_sequences(tmp_path, 16, 128)
    next(making)
    making.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [16, 512])
def test_sample_sequences_of_every_length_are_valid(tmp_path, length):
    make(tmp_path, 64, length)
    data = examine(config(tmp_path, sequence_length=length))
    assert len(data) == 64
    assert data.sha256 == resolved(tmp_path).work.data_sha256


def test_the_digest_depends_on_names_sizes_and_content(tmp_path):
    wanted = resolved(tmp_path)
    assert wanted.work.data_sha256 is None
    shard = tmp_path / "a.hdf5"
    digests = set()
    for rows, first in ((4, 0), (4, 1), (5, 1)):
        write(shard, rows, first)
        digests.add(wanted.work.data_sha256)
    shard.rename(tmp_path / "b.h5")
    digests.add(wanted.work.data_sha256)
    assert len(digests) == 4
    assert None not in digests


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input_mask": None}, "input_mask: expected a dataset, found none"),
        ({"length": 512}, "sequences of 512 tokens; sequence_length is 16"),
        ({"input_ids": np.full((4, 16), 30522)}, "input_ids: expected 0 to 30521, found 30522"),
    ],
)
def test_an_invalid_shard_is_rejected_with_file_and_dataset(tmp_path, changes, expected):
    write(tmp_path / "a.hdf5", 4)
    write(tmp_path / "b.hdf5", **{"rows": 4} | changes)
    with pytest.raises(InputError, match=rf"b\.hdf5: .*{expected}"):
        examine(config(tmp_path))


def test_a_foreign_file_is_rejected(tmp_path):
    (tmp_path / "a.hdf5").write_text("hello")
    with pytest.raises(InputError, match=r"a\.hdf5: can't be read as HDF5: .*sign"):
        examine(config(tmp_path))


@pytest.mark.usefixtures("processes")
def test_the_dataloader_yields_shard_rows_as_int64(shard, arrays):
    wanted = config(shard, batch_size=4, sequence_length=128)
    (batch,) = loaded(wanted, 1)
    tokens = (4, 128)
    words = (4, 20)
    shapes = [field.shape for field in batch]
    assert shapes == [tokens, tokens, tokens, words, words, (4, 1)]
    first_batch = next(Sequences(wanted).batches(0, 1000))
    rows = [location.row for location in first_batch]
    for name, field in zip(FIELDS, batch, strict=True):
        assert field.dtype == np.int64
        expected = arrays[name][rows]
        assert np.array_equal(field, expected.reshape(4, -1))


def test_ranks_read_disjoint_rows_in_equal_numbers(tmp_path):
    write(tmp_path / "0.hdf5", rows=7, first=0)
    write(tmp_path / "1.hdf5", rows=12, first=7)
    write(tmp_path / "2.hdf5", rows=5, first=19)
    data = Sequences(config(tmp_path, processes=2, batch_size=3))
    of_first_rank = rows_read(data, 0, batches=4)
    of_second_rank = rows_read(data, 1, batches=4)
    assert sorted(of_first_rank + of_second_rank) == [*range(24)]


def rows_read(data, rank, batches):
    """Return n of each row in the first batches of a rank, in the order of reading; `write` has
    written the rows."""
    numbers = []
    for batch in islice(data.batches(rank, batches), batches):
        for location in batch:
            ids, *_others = data[location]
            numbers.append(int(ids[0]) - 1000)
    return numbers


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 9)
)
def test_parts_of_an_epoch_are_disjoint_equal_and_read_shard_by_shard(shards, parts, seed):
    length = sum(shards) // parts
    stretches = [stretch(shards, seed, part, parts) for part in range(parts)]
    if not length:
        return
    for _epoch in range(2):
        read_before = set()
        for rows in stretches:
            part = [*islice(rows, length)]
            assert len(part) == length
            for location in part:
                assert location.row < shards[location.shard]
                assert location not in read_before
                read_before.add(location)
            stays_in_shard = [shard for shard, _rows in groupby(part, lambda row: row.shard)]
            assert len(stays_in_shard) == len({*stays_in_shard})


def test_the_order_differs_between_epochs_and_seeds():
    rows = stretch([7, 5], 0, 0, 1)
    first = [*islice(rows, 12)]
    second = [*islice(rows, 12)]
    rows_of_other_seed = stretch([7, 5], 1, 0, 1)
    other_seed = [*islice(rows_of_other_seed, 12)]
    assert first != second
    assert first != other_seed
    assert {*first} == {*second} == {*other_seed}


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
