"""Sample data, file lists and the three inputs, with the real DALI and DataLoader."""

import hashlib
import re
from itertools import islice

import numpy as np
import pytest
from conftest import cli
from loading import load, loaded

from perfkit.inputs import InputError, synthetic
from perfkit.inputs.data_set import examine
from perfkit.inputs.images import DEVIATION, MEAN, Images
from perfkit.inputs.samples import make_images, picture
from perfkit.measuring.request.resolve import resolve
from perfkit.training.models import BERT_SIZE, END_OF_TEXT, predictions

# Digest of pictures 0 to 7. If it changes, results with old and new sample data are no longer
# comparable.
DIGEST = "16a79576fb1c72f2234dcf93763062a2821beea4f1508e2c8b4927eedf768a20"
EXPECTED = "expected `path label`, label below 1000, found "


def config(data_dir="none", **changes):
    """Return the options that the inputs take."""
    made = resolved(data_dir, **changes)
    return made.work.options(made)


def resolved(data_dir="none", **changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 4, "image_size": 64}
    values |= {"layout": "NCHW", "data_dir": str(data_dir), "processes": 1}
    return resolve(values | changes)


def batches_of(config):
    """Return the batches of rank 0 by DALI, the default input of images."""
    from perfkit.inputs import dali

    assert config.input == "dali"
    return dali.batches(config, 0, "nvidia.dali.plugin.paddle")


def test_samples_are_byte_identical():
    digest = hashlib.sha256()
    for number in range(8):
        digest.update(picture(number))
    assert digest.hexdigest() == DIGEST


def test_sample_data_has_the_published_layout_and_a_digest(samples, tmp_path):
    listed = examine(config(samples))
    assert len(listed) == 24
    assert listed.paths[:2] == ["train/s00/s00_0.jpeg", "train/s01/s01_1.jpeg"]
    assert listed.labels[:2] == [0, 1]
    assert listed.sha256 == resolved(samples).work.data_sha256
    assert resolved(tmp_path).work.data_sha256 is None
    synthetic_input = resolved(samples, input="synthetic")
    assert synthetic_input.work.data_sha256 is None


def test_an_incomplete_sample_folder_has_no_list(tmp_path):
    making = make_images(tmp_path, 16)
    next(making)
    making.close()
    assert not (tmp_path / "train_list.txt").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpeg 0\nb.jpeg cat\n", f":2: {EXPECTED}'b.jpeg cat'"),
        ("a.jpeg 1000\n", f":1: {EXPECTED}'a.jpeg 1000'"),
    ],
)
def test_an_invalid_list_is_rejected_with_file_and_line(tmp_path, text, message):
    (tmp_path / "train_list.txt").write_text(text)
    with pytest.raises(InputError) as refused:
        Images(config(tmp_path))
    assert f"train_list.txt{message}" in str(refused.value)


def test_the_longest_matching_name_in_a_decoder_message_is_meant(tmp_path):
    (tmp_path / "train_list.txt").write_text("1.jpg 0\n11.jpg 0\n")
    listed = Images(config(tmp_path))
    assert listed.line_of("Error in /d/11.jpg").endswith("train_list.txt:2: ")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dali_and_dataloader_give_normalized_images_in_the_layout(samples, layout):
    shape = {"NCHW": (3, 64, 64), "NHWC": (64, 64, 3)}[layout]
    chosen = config(samples, layout=layout)
    batch, labels = map(np.array, next(batches_of(chosen)))
    image, label = Images(chosen)[5]
    assert batch.shape == (4, *shape)
    assert labels.shape == (4, 1)
    assert image.shape == shape
    assert label.tolist() == [5]
    assert labels.dtype == label.dtype == np.int64
    darkest = -MEAN[1] / DEVIATION[1] - 0.1
    for images in (batch, image):
        assert images.dtype == np.float32
        assert darkest <= images.min() < 0 < images.max() <= 2.65


def test_dali_continues_past_the_end_of_the_list(samples):
    labels = set()
    for _images, batch_labels in islice(batches_of(config(samples)), 60):
        labels |= {*np.array(batch_labels).ravel().tolist()}
    assert labels == {*range(24)}


def test_batches_depend_only_on_the_seed(samples):
    def first(seed):
        images, _labels = next(batches_of(config(samples, seed=seed)))
        return np.array(images)

    assert np.array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))


@pytest.mark.usefixtures("processes")
def test_an_unreadable_image_is_named_by_the_data_loader_of_pytorch(tmp_path):
    """That of Paddle is in test_driver.py."""
    (tmp_path / "a.jpeg").write_bytes(b"no image")
    (tmp_path / "train_list.txt").write_text("a.jpeg 0\n")
    chosen = config(tmp_path, batch_size=1, framework="torch", dataloader_workers=1)
    message = load(chosen, 1).stderr.decode()
    assert re.search(r"InputError: .*_list.txt:1: a.jpeg: cannot identify", message)


@pytest.mark.parametrize("decoder", ["image", "image_random_crop"])
def test_both_dali_decoders_crop_at_random_and_fill_the_image(samples, decoder):
    chosen = config(samples, dali_decoder=decoder, batch_size=24)
    batches = batches_of(chosen)
    # An array is a copy: a batch is valid until the next one.
    first, _labels = map(np.array, next(batches))
    second, _labels = map(np.array, next(batches))
    assert first.shape == (24, 3, 64, 64)
    has_one_colour = first.std(axis=(2, 3)) <= 0.05
    assert not has_one_colour.any()
    # The same images in another order would be equal if they were sorted.
    assert not np.array_equal(np.sort(first.ravel()), np.sort(second.ravel()))


def test_whole_image_decoding_is_the_default_only_on_a_gpu():
    assert config(device="gpu", gpus=1).dali_decoder == "image"
    assert config().dali_decoder == "image_random_crop"
    assert config(dali_decoder="image").dali_decoder == "image"


@pytest.mark.usefixtures("processes")
def test_the_dataloader_gives_every_image_once_per_epoch(samples):
    batches = loaded(config(samples, dataloader_workers=2), 18)
    labels = np.array([batch_labels for _images, batch_labels in batches])
    epochs = labels.reshape(3, 24)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == [*range(24)]
    assert not np.array_equal(epochs[0], epochs[1])


def synthetic_batch(model, rank=0, **changes):
    if model != "resnet50":
        changes |= {"image_size": None, "layout": None}
    chosen = config(model=model, input="synthetic", accumulate=3, **changes)
    batches = synthetic.batches(chosen, rank)
    batch = next(batches)
    assert next(batches) is batch
    other = next(synthetic.batches(chosen, rank + 1))
    assert not np.array_equal(batch[0], other[0])
    return batch


def test_each_rank_repeats_its_own_synthetic_images():
    images, labels = synthetic_batch("resnet50")
    assert images.shape == (4, 3, 64, 64)
    assert labels.shape == (4, 1)


def test_synthetic_sequences_have_full_length_and_all_predictions():
    length = 128
    batch = synthetic_batch("bert", sequence_length=length)
    ids, segments, mask, positions, labels, next_sentence = batch
    assert ids.shape == segments.shape == mask.shape == (4, length)
    assert positions.shape == labels.shape == (4, predictions(length))
    assert next_sentence.shape == (4, 1)
    assert {field.dtype for field in batch} == {np.dtype(np.int64)}
    assert mask.all()
    for words in (ids, labels):
        assert BERT_SIZE.first_word <= words.min() <= words.max() < BERT_SIZE.vocabulary
    assert segments.sum() == 2 * length
    assert np.all(np.diff(positions, axis=1) > 0)
    assert 0 <= positions.min() <= positions.max() < length


def test_synthetic_tokens_are_labelled_with_the_next_token():
    ids, labels = synthetic_batch("gpt", sequence_length=16)
    assert ids.shape == labels.shape == (4, 16)
    assert np.array_equal(ids[:, 1:], labels[:, :-1])
    assert 0 <= ids.min() <= ids.max() < END_OF_TEXT


def run(*words):
    done = cli("samples", *words)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("resnet50", [], "images"),
        ("bert", ["--sequence-length", 64], "sequences of 64 tokens"),
        ("gpt", [], "sequences of 1024 tokens, 65.5 kB, from the language refer"),
    ],
)
def test_samples_creates_a_data_set_and_recognizes_it(tmp_path, model, options, message):
    command = tmp_path / "s", "--for", model, "--count"
    code, output = run(*command, 32, *options)
    assert code == 0
    assert f"32 {message}" in output
    assert re.search(r", [1-9][\d.]* [kM]B", output)
    created = contents(tmp_path / "s")
    code, output = run(*command, 32, *options)
    assert code == 0
    kind, _comma, _size = message.partition(",")
    assert f"already has 32 {kind}" in output
    code, output = run(*command, 33, *options)
    assert code == 2
    assert "contains another data set" in output
    assert contents(tmp_path / "s") == created


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*.*")}


def test_samples_rejects_an_unsupported_sequence_length(tmp_path):
    code, output = run(tmp_path, "--for", "bert", "--sequence-length", 513)
    assert code == 2
    assert "bert has 512 positions" in output
