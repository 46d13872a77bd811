"""The driver: starts and monitors workers, and stores their results. Imports no framework.

measure.py     plans and runs the repeats of a measurement and stores its result
repeat.py      runs one repeat, or another task of workers
failures.py    finds why workers exited early
progress.py    progress as one line: its text, and lines in a log
live.py        the line with a bar on a terminal or in a notebook
doctor.py      checks before a measurement
workers.py     launchers and worker groups; the workers of one node
supervisor.py  runs one command and leaves no process behind
connection.py  connections and messages between the driver and the nodes
node_agent.py  runs workers on a node for the driver
cluster.py     the driver's side of a measurement on several nodes
manifest.py    an indexed Kubernetes Job, from manifest.yaml.j2
"""
