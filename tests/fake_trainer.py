"""A trainer of known run time in the place of launcher and workers: for what is around them.

`planted(seconds)` is the text of a sitecustomize.py that has every notebook's kernel start this
file instead: one repeat takes `seconds`, from the start of the process to its last event.
"""

import json
import os
import sys
import time
from pathlib import Path

PLANTED = """
import sys
if "ipykernel_launcher" in sys.orig_argv:
    import perfkit.launch

    def command(_config, _place, _log_dir, _job, worker):
        return [sys.executable, {file!r}, {seconds!r}, worker[-1]]

    perfkit.launch.launcher_command = command
"""


def planted(seconds):
    return PLANTED.format(file=__file__, seconds=str(seconds))


def launcher_of(seconds):
    """Takes the place of launch.launcher_command: a repeat takes `seconds`, as above."""

    def command(_config, _place, _log_dir, _job, worker):
        return [sys.executable, __file__, str(seconds), worker[-1]]

    return command


def running_seconds():
    """Since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    now = float(Path("/proc/uptime").read_text().split()[0])
    return now - ticks / os.sysconf("SC_CLK_TCK")


def main(seconds, job_file):
    job = json.loads(Path(job_file).read_text())
    config, protocol = job["config"], job["protocol"]
    steps = protocol["warmup_steps"] + protocol["measured_steps"]
    step_seconds = max(0.001, (float(seconds) - running_seconds()) / steps)
    effective = {
        "precision": config["precision"],
        "device": config["device"],
        "dtypes": {},
        "threads": {},
        "variables": {},
        "parameters": 1,
        "recipe": "none: a fake",
        "tf32": config["tf32"],
        "loss_scaling": None,
    }
    with (Path(job["raw_folder"]) / "rank0.jsonl").open("x") as raw:

        def write(event, **fields):
            raw.write(json.dumps({"event": event, **fields}) + "\n")
            raw.flush()

        write("start", pid=os.getpid())
        write("effective", **effective)
        samples = config["batch_size"]
        for step in range(1, steps + 1):
            time.sleep(step_seconds)
            fields = {"step": step, "samples": samples, "data_wait_seconds": 0.0}
            write("step", seconds=step_seconds, **fields)
            write("loss", step=step, value=7.0 - step / steps)
        measured = protocol["measured_steps"]
        write("window", samples=samples * measured, seconds=step_seconds * measured)
        write("end", memory_bytes=1, skipped_steps=None, loss_scale=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
