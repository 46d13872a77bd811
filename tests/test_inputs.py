"""The sample data, the list of files and the three inputs, DALI and DataLoader for real."""

import hashlib
import io

import numpy as np
import pytest
from loading import loaded
from PIL import Image

from perfkit.inputs import InputError, dali, dataloader, synthetic
from perfkit.inputs.data_set import digest, examine
from perfkit.inputs.images import DEVIATION, MEAN, Images
from perfkit.inputs.samples import make_images, path_of, picture
from perfkit.request.resolve import resolve

# Of pictures 0 to 7. Another digest means other bytes: results made with the old sample data
# no longer compare with new ones.
DIGEST = "3fbd4ed71ad674f790068f05e659ce3bb145bc13fab51cef85f33b6939ab453b"
EXPECTED = "expected `path label`, label below 1000, found "


def config(data_dir, **changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 4, "image_size": 64}
    values |= {"layout": "NCHW", "data_dir": str(data_dir), "processes": 1}
    return resolve(values | changes)


def data(tmp_path, text, files=()):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(picture(0))
    (tmp_path / "train_list.txt").write_text(text)
    return tmp_path


def test_samples_are_the_same_bytes_every_time():
    digest = hashlib.sha256(b"".join(picture(number) for number in range(8))).hexdigest()
    assert digest == DIGEST


def test_samples_are_like_photographs_in_size_and_weight():
    pictures = [picture(number) for number in range(24)]
    assert len(set(pictures)) == 24
    assert 95_000 < np.mean([len(p) for p in pictures]) < 125_000
    for encoded in pictures:
        with Image.open(io.BytesIO(encoded)) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert 333 <= min(image.size) <= max(image.size) <= 640


def test_sample_data_has_the_published_layout(samples):
    listed = Images(config(samples))
    listed.check()
    assert listed.paths[:2] == ["train/s00/s00_0.jpeg", "train/s01/s01_1.jpeg"]
    assert listed.labels[:2] == [0, 1]


def test_a_sample_folder_that_was_cut_off_has_no_list(tmp_path):
    making = make_images(tmp_path, 16)
    next(making)
    making.close()
    assert not (tmp_path / "train_list.txt").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": is empty"),
        ("train/a.jpeg\n", f":1: {EXPECTED}'train/a.jpeg'"),
        ("\n", f":1: {EXPECTED}''"),
        ("a.jpeg 0\nb.jpeg cat\n", f":2: {EXPECTED}'b.jpeg cat'"),
        ("a.jpeg 1000\n", f":1: {EXPECTED}'a.jpeg 1000'"),
        ("a.jpeg -1\n", f":1: {EXPECTED}'a.jpeg -1'"),
        ("a.jpeg ٣\n", f":1: {EXPECTED}'a.jpeg ٣'"),
    ],
)
def test_a_wrong_list_is_refused_with_file_and_line(tmp_path, text, told):
    with pytest.raises(InputError) as refused:
        Images(config(data(tmp_path, text)))
    assert f"train_list.txt{told}" in str(refused.value)


def test_a_list_that_is_no_text_is_refused_with_its_line(tmp_path):
    (tmp_path / "train_list.txt").write_bytes(b"a.jpeg 0\nb\xff.jpeg 0\n")
    with pytest.raises(InputError, match=r"train_list\.txt:2: not UTF-8"):
        Images(config(tmp_path))


def test_many_problems_are_told_together_but_not_all_of_a_million(tmp_path):
    with pytest.raises(InputError, match="and 15 more") as refused:
        Images(config(data(tmp_path, "x\n" * 20)))
    assert len(str(refused.value).splitlines()) == 6


def test_missing_files_are_told_with_their_lines(tmp_path):
    data(tmp_path, "train/a.jpeg 0\ntrain/b.jpeg 1\nelsewhere/c.jpeg 2\n", ["train/a.jpeg"])
    with pytest.raises(InputError) as refused:
        Images(config(tmp_path)).check()
    first, second = str(refused.value).splitlines()
    assert first.endswith("train_list.txt:2: no such file: train/b.jpeg")
    assert second.endswith("train_list.txt:3: no such file: elsewhere/c.jpeg")


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "is empty"), (b"hello", "is not an image")]
)
def test_a_file_that_is_no_image_is_told_before_anything_starts(tmp_path, content, told):
    data(tmp_path, "a.jpeg 0\nb.jpeg 1\n", ["a.jpeg"])
    (tmp_path / "b.jpeg").write_bytes(content)
    with pytest.raises(InputError, match=rf"train_list\.txt:2: b\.jpeg: {told}"):
        Images(config(tmp_path)).check()


def test_file_names_may_hold_spaces(tmp_path):
    data(tmp_path, "train/a b.jpeg 7\n", ["train/a b.jpeg"])
    listed = Images(config(tmp_path))
    listed.check()
    assert (listed.paths, listed.labels) == (["train/a b.jpeg"], [7])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dali_gives_normalized_batches_in_the_layout_asked_for(samples, layout):
    batches = dali.batches(config(samples, layout=layout), 0)
    images, labels = next(batches)
    images, labels = np.array(images), np.array(labels)
    assert images.shape == ((4, 3, 64, 64) if layout == "NCHW" else (4, 64, 64, 3))
    assert (images.dtype, labels.dtype, labels.shape) == (np.float32, np.int64, (4, 1))
    assert -MEAN[1] / DEVIATION[1] - 0.1 <= images.min() < 0 < images.max() <= 2.65


def test_dali_goes_on_past_the_end_of_the_list(samples):
    batches = dali.batches(config(samples), 0)
    seen = {label for _ in range(60) for label in np.array(next(batches)[1]).ravel().tolist()}
    assert seen == set(range(24))


def test_the_same_seed_gives_the_same_batch_and_another_seed_another(samples):
    def first(seed):
        return np.array(next(dali.batches(config(samples, seed=seed), 0))[0])

    assert np.array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))


def test_a_truncated_jpeg_is_an_error_with_file_and_line_in_dali(tmp_path):
    data(tmp_path, "a.jpeg 0\nb.jpeg 1\n", ["a.jpeg"])
    (tmp_path / "b.jpeg").write_bytes(picture(1)[:20_000])
    Images(config(tmp_path)).check()
    with pytest.raises(InputError, match=r"train_list\.txt:2: Failed to decode .*b\.jpeg"):
        next(dali.batches(config(tmp_path), 0))


def test_a_truncated_jpeg_is_an_error_with_file_and_line_in_the_dataloader(tmp_path):
    data(tmp_path, "a.jpeg 0\nb.jpeg 1\n", ["a.jpeg"])
    (tmp_path / "b.jpeg").write_bytes(picture(1)[:20_000])
    dataset = Images(config(tmp_path))
    with pytest.raises(InputError, match=r"train_list\.txt:2: b\.jpeg: .*truncated"):
        dataset[1]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_dataloaders_images_are_like_dalis(samples, layout):
    files = Images(config(samples, layout=layout))
    image, label = files[5]
    assert image.shape == ((3, 64, 64) if layout == "NCHW" else (64, 64, 3))
    assert (image.dtype, label.dtype, label.tolist()) == (np.float32, np.int64, [5])
    assert -MEAN[1] / DEVIATION[1] - 0.1 <= image.min() < 0 < image.max() <= 2.65


def test_a_data_set_smaller_than_a_step_is_refused_by_the_dataloader(samples):
    too_large = config(samples, batch_size=25)
    with pytest.raises(InputError, match="24 images, and one step of 1 x 25 needs more"):
        next(dataloader.batches(too_large, 0))


def test_synthetic_input_is_one_batch_again_and_again():
    batches = synthetic.batches(config("none", input="synthetic", accumulate=3), 0)
    first, second = next(batches), next(batches)
    assert first is second
    assert first[0].shape == (4, 3, 64, 64)


@pytest.mark.usefixtures("processes")
def test_the_dataloader_gives_every_image_once_before_any_again(samples):
    batches = loaded(config(samples, dataloader_workers=2), 18)
    epochs = np.array([labels for _images, labels in batches]).reshape(3, 24)
    for labels in epochs:
        assert sorted(labels.tolist()) == list(range(24))
    assert not np.array_equal(epochs[0], epochs[1])


def test_a_list_of_images_is_examined_and_identified(samples, tmp_path):
    examined = examine(config(samples))
    assert len(examined) == 24
    assert examined.sha256 == digest(config(samples))
    assert digest(config(tmp_path)) is None
    assert digest(config(samples, input="synthetic")) is None
    with pytest.raises(InputError, match=r"b\.jpeg: is empty"):
        (tmp_path / "b.jpeg").touch()
        examine(config(data(tmp_path, "b.jpeg 1\n")))


def test_names_of_samples_are_distinct():
    assert len({path_of(number) for number in range(512)}) == 512


def test_the_longest_name_in_a_decoders_message_is_the_one_that_it_means(tmp_path):
    listed = Images(config(data(tmp_path, "1.jpg 0\n11.jpg 0\n")))
    assert listed.line_of("Error in /d/11.jpg").endswith("train_list.txt:2: ")
