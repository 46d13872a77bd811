"""The driver: starts and monitors workers, and stores their results. Imports no framework.

measure.py          plans and runs the repeats of a measurement and stores its result
repeat.py           runs one repeat, or another task of workers
profile.py          one more run under the framework's profiler
watch.py            watches the workers of a repeat while they train
conclusion.py       derives a repeat from the raw events of its ranks
warmup.py           follows rank 0, and tests whether its warm-up is over
failures.py         finds why workers exited early
told_failures.py    finds what ranks told that makes a repeat useless
progress.py         progress as one line
doctor.py           what is here before a measurement
rank_processes.py   the processes of a machine's ranks
workers.py          launchers and worker groups; the workers of one node
rank_job.py         what a rank runs
settings.py         threads, DALI settings and environment variables of the ranks
exit_info.py        how workers exited
logs.py             logs of workers, of which beginning and end are kept
supervised.py       starts a command under a supervisor
supervisor.py       runs one command and leaves no process behind
cluster.py          the driver's side of a measurement on several nodes
programs.py         starts the node programs of a repeat by ssh or srun
node.py             the node program, which runs the workers of another node
node_files.py       files through which the driver and the nodes tell each other what they need
"""
