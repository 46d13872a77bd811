"""The nodes of a measurement: how workers are started on each, and what each says of itself.

launch.py       starts the workers of one node and sees to it that they end
supervisor.py   runs one command and leaves nothing of it behind
start.py        starts a process on each node
node.py         a node, told by the driver what to run
remote.py       all nodes, seen from the driver
reception.py    where the nodes come in
wire.py         the messages between driver and node
manifest.py     the nodes as an indexed Job of Kubernetes
"""
