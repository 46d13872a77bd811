"""Sweeps: every configuration of a parameters file, each measured by a notebook of its own.

matrix.py    a parameters file: the configurations that it names, and all that is wrong with it
jobs.py      configurations as jobs: validated together, named, matched with what is measured;
             who runs them, and where
engine.py    Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after
progress.py  what is seen of it in the terminal, and how long it will take
"""
