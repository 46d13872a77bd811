"""The driver: it starts workers, watches them and stores what they measured. No framework.

measure.py     plans repeats, runs them in fresh processes, collects, stores
repeat.py      one repeat, from its first process to its last; other tasks of workers
failures.py    why workers ended before their time
progress.py    the bar that a waiting user sees
doctor.py      what would keep a measurement from running
workers.py     launchers and groups of workers; those of one node, started and all ended
supervisor.py  runs one command and leaves nothing of it behind
connection.py  connections between the driver and the nodes, and the messages on them
node_agent.py  a node, told by the driver what to run
cluster.py     all nodes, seen from the driver
manifest.py    the nodes as an indexed Job of Kubernetes, by manifest.yaml.j2
"""
