"""`perfkit samples`: sample data to train on."""

import sys

import click

from perfkit.cli.telling import refuse
from perfkit.config import portable, typed_path
from perfkit.models import MODELS
from perfkit.request.errors import RequestError
from perfkit.request.resolve import resolve

LENGTH = MODELS["bert"].default_sequence_length


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
    help=f"Tokens per sequence, for bert.  [default: {LENGTH}]",
)
def samples(
    folder: str | None, model: str, count: int | None, sequence_length: int | None
) -> None:
    """Make sample data in FOLDER: JPEG files and their list, or for bert an HDF5 shard.

    They are the same bytes every time; the shard's text is that of the Python release.
    FOLDER is data/samples, or data/sequences for bert, unless given.
    """
    from perfkit.inputs import InputError
    from perfkit.inputs.data_set import data_set, digest
    from perfkit.inputs.images import LIST
    from perfkit.inputs.samples import SHARD, SOURCE, make_images, make_sequences

    given = {"model": model, "sequence_length": sequence_length}
    config = resolve(given | {"data_dir": typed_path(folder) if folder is not None else None})
    path, length = config.data_folder, config.sample_size
    if MODELS[model].sample == "sequence":
        count, made, source = count or 2048, path / SHARD, f", from {SOURCE}"
        what = f"{count} sequences of {length} tokens"
        making = make_sequences(path, count, length)
    elif sequence_length:
        refuse(RequestError([f"--sequence-length: {model} trains on images"]))
    else:
        count, made, source = count or 512, path / LIST, ""
        what = f"{count} images"
        making = make_images(path, count)
    if digest(config):
        try:
            same = made.exists() and len(data_set(config)) == count
        except InputError:
            same = False
        if not same:
            problem = f"FOLDER: {path} holds another data set; name an empty folder"
            refuse(RequestError([problem]))
        click.echo(f"{portable(str(path))} has its {what} already")
        return
    with click.progressbar(making, count, "Sample data", file=sys.stderr) as bar:
        size = f"{sum(bar) / 1e6:.1f} MB"
    click.echo(f"{portable(str(path))}: {what}, {size}{source}")
