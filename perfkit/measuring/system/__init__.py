"""This machine, examined without starting a framework.

environment.py   hardware, driver, versions and settings, each with a value or a reason
telemetry.py     samples during a repeat
cpu.py           sensors and times of the CPU
process_tree.py  CPU time of a measurement's processes
gpus.py          NVIDIA GPUs, through NVML
devices.py       accelerators as a framework sees them
nccl.py          the network over which NCCL connects the nodes
software.py      packages of an interpreter
scratch.py       processes that end together, and their temporary folders
"""
