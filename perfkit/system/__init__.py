"""This machine, seen without starting a framework.

environment.py  its hardware, driver, versions and settings: each a value, or the reason why not
telemetry.py    samples of it while a repeat runs
gpus.py         its NVIDIA GPUs, by NVML
software.py     what is installed
processes.py    how processes end together
"""
