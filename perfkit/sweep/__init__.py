"""Sweeps: every configuration of a parameters file, each measured by a notebook of its own.

file.py     what a parameters file names: configurations, or all that is wrong with it
jobs.py     configurations as jobs: judged as a whole, named, matched with what is measured
engine.py   Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after
board.py    what is seen of it in the terminal
"""
