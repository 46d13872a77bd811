"""One of two processes that start the same measurement at one moment: `racer.py REQUEST`.

Says "ready", waits for a line, and measures with the fake trainer; says "started" of each
repeat that it starts. Ends as `perfkit run` does, with 2 if it is refused.
"""

import json
import sys

from fake_trainer import launcher_command

import perfkit.driver.workers
from perfkit.driver.measure import measure
from perfkit.request import RequestError
from perfkit.request.checks import read_environment
from perfkit.request.plan import plan


def main(request):
    command = launcher_command(0.2)

    def saying(*arguments):
        print("started", flush=True)
        return command(*arguments)

    perfkit.driver.workers.launcher_command = saying
    planned = plan("resnet50", request)
    # What takes its time, and would spread those who start together, is read once.
    read_environment(planned.config.framework, planned.config.data_folder)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        measure(planned.config, planned.protocol)
    except RequestError as refused:
        print(refused, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
