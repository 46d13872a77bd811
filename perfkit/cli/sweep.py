"""`perfkit sweep`: every configuration that a file names."""

from pathlib import Path

import click

from perfkit.cli.options import EPILOG, PARAMETERS, Given, typed_values
from perfkit.cli.telling import refuse


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@PARAMETERS
@click.option(
    "--profile",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Who runs the jobs: a folder of workflow/profiles (local, slurm, kubernetes), or one "
    "of your own.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would run, and how long.")
def sweep(file: Path, given: Given, profile: str, dry_run: bool) -> None:
    """Measure every configuration that FILE names, each by a notebook of its own.

    FILE is one of parameters/ or your own. A parameter given by -p is the same for all its
    configurations: -p data_dir /data/imagenet, -p label NAME. What is measured already is left
    as it is: after an interruption, even a kill or a power cut, the same command goes on, and
    loses no more than the repeat that was running. A configuration that fails does not end the
    sweep; its command, to try it alone, is printed at the end.

    Progress is below outputs/sweeps/; outputs/index.html is kept up to date as it goes.
    """
    from rich.console import Console

    from perfkit.sweep import board
    from perfkit.sweep.engine import Engine
    from perfkit.sweep.file import SweepError
    from perfkit.sweep.jobs import outputs_of, read_jobs
    from perfkit.sweep.profile import Profile

    console = Console(stderr=True, highlight=False)
    try:
        where = Profile.named(profile)
        values = typed_values(given)
        jobs = read_jobs(file, values, where.executor)
        engine = Engine(file.stem, jobs, outputs_of(jobs), where)
        in_turn = not where.elsewhere
        if dry_run:
            Console(highlight=False).print(board.planned(engine.standings(), in_turn=in_turn))
            return
        with board.Board(console, file.stem, in_turn=in_turn) as shown:
            standings = engine.run(shown.show, shown.say)
            shown.show(standings, over=True)
    except SweepError as error:
        refuse(error)
    except KeyboardInterrupt:
        click.echo("Interrupted; the same command goes on from here.", err=True)
        raise SystemExit(1) from None
    failed = any(one.state == "failed" for one in standings)
    if failed:
        board.tell_failures(console, standings)
    click.echo(engine.outputs / "index.html")
    raise SystemExit(1 if failed else 0)
