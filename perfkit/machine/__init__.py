"""What this machine has, found without starting a framework.

gpus.py       its NVIDIA GPUs, by NVML
gauges.py     what the kernel tells, in /proc and /sys
packages.py   what is installed
processes.py  how processes end together
hosts.py      which machines take part, and which of them this is
"""
