"""Sweeps: all configurations of a parameters file, each measured by its own notebook run.

matrix.py    configurations and errors of a parameters file
jobs.py      jobs of the configurations, and their stored measurements
engine.py    Snakemake's profiles; runs, monitors and stops Snakemake with workflow/Snakefile
notebook.py  runs the notebook of a job, in processes forked from one with all imports
progress.py  progress in the terminal, and the remaining time
"""
