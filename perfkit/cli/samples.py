"""`perfkit samples`: sample data to train on."""

import sys
from pathlib import Path

import click

from perfkit.cli.telling import refuse
from perfkit.config import portable, resolved_path
from perfkit.models import MODELS
from perfkit.request.refusal import RequestError


@click.command(epilog="\b\nExit status: 0 done, 2 the request was wrong.")
@click.argument("folder", required=False)
@click.option(
    "--for",
    "model",
    default="resnet50",
    show_default=True,
    type=click.Choice(list(MODELS)),
    help="The model to train on them.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    help="How many.  [default: 512 images or 2048 sequences]",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(16, 512),
    help="Tokens per sequence, for bert.  [default: 128]",
)
def samples(
    folder: str | None, model: str, count: int | None, sequence_length: int | None
) -> None:
    """Make sample data in FOLDER: JPEG files and their list, or for bert an HDF5 shard.

    They are the same bytes every time; the shard's text is that of the Python release.
    FOLDER is data/samples, or data/sequences for bert, unless given.
    """
    path = Path(folder).absolute() if folder else resolved_path(MODELS[model].data_dir)
    if MODELS[model].sample == "sequence":
        _sample_sequences(path, count or 2048, sequence_length or 128)
    elif sequence_length:
        refuse(RequestError([f"--sequence-length: {model} trains on images"]))
    else:
        _sample_images(path, count or 512)


def _sample_images(folder: Path, count: int) -> None:
    from perfkit.inputs.samples import make_samples

    made = folder / "train_list.txt"
    if made.exists():
        same = len(made.read_text().splitlines()) == count
        _say_it_is_there(folder, f"{count} samples", same)
        return
    with click.progressbar(
        make_samples(folder, count), count, "Sample images", file=sys.stderr
    ) as bar:
        size = sum(bar)
    average = f"{size / count / 1000:.0f} kB on average"
    click.echo(f"{portable(str(folder))}: {count} images, {average}")


def _sample_sequences(folder: Path, count: int, length: int) -> None:
    from perfkit.inputs.files import InputError
    from perfkit.inputs.sample_sequences import NAME, SOURCE, make_shard
    from perfkit.inputs.shards import read_shards, shard_files

    what = f"{count} sequences of {length} tokens"
    made = folder / NAME
    if folder.is_dir() and (there := shard_files(folder)):
        try:
            same = there == [made] and read_shards(folder, length).rows == [count]
        except InputError:
            same = False
        _say_it_is_there(folder, what, same)
        return
    with click.progressbar(
        make_shard(folder, count, length), count, "Sample sequences", file=sys.stderr
    ) as bar:
        for _one in bar:
            pass
    size = f"{made.stat().st_size / 1e6:.1f} MB"
    click.echo(f"{portable(str(folder))}: {what}, {size}, from {SOURCE}")


def _say_it_is_there(folder: Path, what: str, same: bool) -> None:
    """Say that the folder has these samples already; refuse to overwrite others."""
    if not same:
        refuse(RequestError([f"FOLDER: {folder} holds another data set; name an empty folder"]))
    click.echo(f"{portable(str(folder))} has its {what} already")
