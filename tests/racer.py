"""One of two processes that start the same measurement simultaneously: `racer.py REQUEST`.

Prints "ready", waits for a line and measures with the fake trainer; prints "started" for each
repeat. Exits like `perfkit run`, with 2 if the request is rejected.
"""

import json
import sys

from fake_trainer import launcher_command

import perfkit.measuring.driver.workers
from perfkit.measuring.driver.measure import measure
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.request.requirements import read_environment


def main(request):
    command = launcher_command(0.2)

    def announced(*arguments):
        print("started", flush=True)
        return command(*arguments)

    perfkit.measuring.driver.workers.launcher_command = announced
    planned = plan("resnet50", request)
    # Read the environment into its cache now: it is slow and would spread the starts.
    read_environment(planned.config.framework, planned.config.work.data_folder)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        measure(planned.config, planned.protocol)
    except RequestError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
