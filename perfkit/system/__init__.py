"""This machine, seen without starting a framework.

environment.py  its hardware, driver, versions and settings: each a value, or the reason why not
telemetry.py    samples of it while a repeat runs
gpus.py         its NVIDIA GPUs, by NVML
software.py     what an interpreter has installed
scratch.py      processes that end together, and temporary folders that end with them
"""
