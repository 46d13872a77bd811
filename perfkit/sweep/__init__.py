"""Sweeps: every configuration of a parameters file, each measured by a notebook of its own.

yaml_file.py  a person's YAML, read with care and with its lines
file.py       what a parameters file names: configurations, and all that is wrong with it
jobs.py       configurations as jobs: judged as a whole, named, matched with what is measured
profile.py    who runs the jobs, and where
engine.py     Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after
estimate.py   how long it will take
board.py      what is seen of it in the terminal
"""
