"""Sweeps: all configurations of a parameters file, each measured by `perfkit run`.

sweep_file.py  a parameters file, with the lines of its items and problems
matrix.py      configurations of a parameters file
jobs.py        a job for each configuration
status.py      state of each job, from the stored measurements
nodes.py       the nodes of a fleet
run.py         runs a whole sweep: lock, jobs, site
local.py       runs jobs on this machine, one after another
slurm.py       runs each job as a Slurm job
progress.py    progress in the terminal, and the remaining time

Stored measurements are the only state: a call that follows an interruption or a kill compares
the file with them. `outputs/sweeps/` holds only the logs of the jobs.
"""
