"""`python -m perfkit.cli`: the command `perfkit` by the interpreter of this environment."""

from perfkit.cli import main

main(prog_name="perfkit")
