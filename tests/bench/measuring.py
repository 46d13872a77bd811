"""One repeat through the suite's own way, for figures that compare such."""

import tempfile
from typing import Any

import perfkit
from perfkit.results.schema import Result


def result_of(**parameters: Any) -> Result:
    """The result of one repeat of ResNet-50 on the CPU, in fresh processes."""
    with tempfile.TemporaryDirectory() as outputs:
        request = {"device": "cpu", "repeats": 1, "outputs_dir": outputs} | parameters
        plan = perfkit.plan("resnet50", request)
        result = perfkit.measure(plan.config, plan.protocol).result
    assert result.status == "complete", result.failure
    return result


def measured(**parameters: Any) -> float:
    """Images/s of one repeat."""
    return result_of(**parameters).throughput.value
