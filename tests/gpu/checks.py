"""The GPU checks: the probes each needs and how it judges their facts.

Starts no process and imports no framework. `judge` functions take facts as written by
probes.py and return the problem, empty if there is none, and the observation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

Facts = dict[str, Any]
Judged = tuple[str, str]
"""The problem, and the observation."""

SAME_MEMORY = 0.05
"""Allowed relative difference: the driver reserves some GPU memory."""
WATTS = (10, 3000)
WINDOW = 0.02
"""Allowed difference between the sum of events and the host's time, relative to the latter."""
TF32_GAIN = 3
LOSS = 0.05
UPDATES = 10
REPEATABLE = 0.03
PLAUSIBLE = {"matmul": (0.4, 1.05), "copy": (0.5, 1.05)}
"""Allowed shares of the datasheet's figure."""
SPREAD = 0.03
PARTS = 1.1
DALI_DIFFERENCE = 0.15
"""Allowed mean difference of normalized pixels (standard deviation 1), from a different JPEG
decoder and resize; different crops differ by about 1."""
KEPT_BYTES = 300 * 2**20
"""Allowed increase of the GPU memory in use."""
SECONDS_TO_END = 15


class NotCheckedError(Exception):
    """The check does not apply to this machine or framework; the message says why."""


@dataclass(frozen=True)
class Check:
    """`needs` names the probes whose facts `judge` gets, in this order; `on_cpu`: whether the
    check also works without a GPU."""

    name: str
    needs: tuple[str, ...]
    judge: Callable[..., Judged]
    on_cpu: bool = False


def identity(facts: Facts) -> Judged:
    nvml, framework = facts["identity"]["nvml"], facts["identity"]["framework"]
    seen = f"{nvml['name']}, {nvml['bytes'] / 2**30:.1f} GiB by NVML"
    seen += f"; {framework['name']}, {framework['bytes'] / 2**30:.1f} GiB by the framework"
    if nvml["name"] != framework["name"]:
        return "NVML and the framework name different GPUs", seen
    if abs(nvml["bytes"] - framework["bytes"]) > SAME_MEMORY * nvml["bytes"]:
        return f"their memory differs by over {SAME_MEMORY:.0%}", seen
    return "", seen


def energy(facts: Facts) -> Judged:
    joules, seconds = facts["energy"]["joules"], facts["energy"]["seconds"]
    watts = joules / seconds
    wrong = "" if WATTS[0] < watts < WATTS[1] else f"expected {WATTS[0]} to {WATTS[1]} W"
    return wrong, f"{joules:.1f} J in {seconds:.2f} s: {watts:.0f} W"


def events(facts: Facts) -> Judged:
    return _window(facts["events"])


def not_passed(facts: Facts) -> Judged:
    passed = facts["events"]["passed_at_once"]
    return "an event passed while its work was still queued" if passed else "", str(passed)


def _window(facts: Facts) -> Judged:
    device, host = facts["device_seconds"], facts["host_seconds"]
    seen = f"events {device * 1e3:.2f} ms, host {host * 1e3:.2f} ms ({device / host - 1:+.2%})"
    apart = abs(device - host) > WINDOW * host
    return f"they differ by over {WINDOW:.0%}" if apart else "", seen


def window(*trainings: Facts) -> Judged:
    return _all(_window, trainings)


def no_synchronization(*trainings: Facts) -> Judged:
    if any(one["synchronized"] is None for one in trainings):
        raise NotCheckedError("PyTorch alone reports synchronizations")
    return _all(lambda one: (one["synchronized"] or "", "none in the window"), trainings)


def batches_stay(*trainings: Facts) -> Judged:
    def judge(facts: Facts) -> Judged:
        places = facts["places"]
        seen = f"{places[0][0]}, {len({address for _, address in places})} address"
        if not any(word in places[0][0].lower() for word in ("cuda", "gpu")):
            return "the batch is not on the GPU", seen
        if len({tuple(place) for place in places}) != 1:
            return "the batch is copied again", seen
        return "", seen

    return _all(judge, trainings)


def precisions(*trainings: Facts) -> Judged:
    """The trainings run in fp32, amp and bf16, in this order, with TF32 off."""
    found = [(one["effective"]["precision"], one["effective"]["tf32"]) for one in trainings]
    seen = ", ".join(f"{name}{' with TF32' if tf32 else ''}" for name, tf32 in found)
    expected = ("fp32", "amp", "bf16")[: len(trainings)]
    wrong = [name for name, _ in found] != [*expected] or found[0][1]
    return "expected fp32 without TF32, amp, bf16" if wrong else "", seen


def tf32(plain: Facts, rounded: Facts) -> Judged:
    before, after = (max(_rates(one, "matmul_flops_per_second")) for one in (plain, rounded))
    seen = f"{before / 1e12:.1f} and {after / 1e12:.1f} TFLOP/s: {after / before:.1f} times"
    return "" if after > TF32_GAIN * before else f"expected over {TF32_GAIN} times", seen


def overflow(facts: Facts) -> Judged:
    seen = f"{facts['finite']} of {facts['of']} weights finite, "
    seen += f"{facts['skipped_steps']} of {facts['steps']} steps skipped"
    if not 0 < facts["skipped_steps"] < facts["steps"]:
        return "expected a skipped step and others that are not", seen
    return "" if facts["finite"] == facts["of"] else "weights are not finite", seen


def losses(*trainings: Facts) -> Judged:
    """Compare the losses after UPDATES updates with the first training's."""
    short = [one for one in trainings if len(one["losses"]) <= UPDATES]
    if short:
        return (
            f"a training has fewer than {UPDATES} updates",
            f"{len(short[0]['losses'])} losses",
        )
    after = [one["losses"][UPDATES] for one in trainings]
    seen = ", ".join(f"{loss:.4f}" for loss in after)
    near = all(isfinite(loss) and abs(loss - after[0]) <= LOSS * after[0] for loss in after)
    return "" if near else f"they differ by over {LOSS:.0%}", seen


def repeatable(facts: Facts) -> Judged:
    rates = _rates(facts, "matmul_flops_per_second"), _rates(facts, "copy_bytes_per_second")
    apart = [max(of) / min(of) - 1 for of in rates]
    seen = f"product {apart[0]:.2%}, copy {apart[1]:.2%} apart"
    return "" if max(apart) <= REPEATABLE else f"expected up to {REPEATABLE:.0%}", seen


def plausible(facts: Facts) -> Judged:
    """run.py adds `sheet`, the datasheet's figures in the same precision, or None."""
    product = max(_rates(facts, "matmul_flops_per_second"))
    copy = max(_rates(facts, "copy_bytes_per_second"))
    seen = f"{product / 1e12:.0f} TFLOP/s, {copy / 1e9:.0f} GB/s"
    if not facts.get("sheet"):
        return "", f"{seen}; its datasheet is not known"
    shares = {
        "matmul": product / facts["sheet"]["flops_per_second"],
        "copy": copy / facts["sheet"]["bytes_per_second"],
    }
    seen += "; of the datasheet's: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items())
    outside = [k for k, v in shares.items() if not PLAUSIBLE[k][0] <= v <= PLAUSIBLE[k][1]]
    return f"not plausible: {', '.join(outside)}" if outside else "", seen


def static(eager: Facts, compiled: Facts) -> Judged:
    problem, seen = losses(eager, compiled)
    ratio = eager["step_seconds"] / compiled["step_seconds"]
    return problem, f"losses {seen}; a step {ratio:.2f} times as fast as eager"


def parts(facts: Facts) -> Judged:
    found = facts["parts"]
    shares = [found[part] for part in ("forward", "backward", "optimizer")]
    if None in shares:
        return "the profiler shows no such part", str(found)
    share = sum(shares) / found["step"]
    wrong = "" if 0 < share <= PARTS else f"expected up to {PARTS} steps"
    return wrong, f"{share:.2f} of a step of {found['step'] * 1e3:.1f} ms"


def trained(facts: Facts) -> Judged:
    found = facts["losses"]
    fell = all(map(isfinite, found)) and found[-1] < found[0]
    seen = f"loss {found[0]:.3f} to {found[-1]:.3f}, {facts['effective']['precision']}"
    return "" if fell else "the loss did not fall", seen


def dali(facts: Facts) -> Judged:
    difference, changed = facts["difference"], facts["held_batch_changed"]
    stayed = "not looked at" if changed is None else not changed
    seen = f"{difference:.4f} from the CPU's batch; a held batch stayed: {stayed}"
    if difference > DALI_DIFFERENCE:
        return f"expected up to {DALI_DIFFERENCE}", seen
    return "a batch that was held changed" if changed else "", seen


def measurement(facts: Facts) -> Judged:
    if facts["status"] != "complete":
        return facts["status"], str(facts["failure"])
    values = sorted(facts["throughputs"])
    middle = values[len(values) // 2]
    spread = (values[-1] - values[0]) / middle
    share = facts["share_of_datasheet"]
    seen = f"{middle:.0f} images/s, spread {spread:.2%} of {len(values)} repeats, MFU "
    seen += f"{share:.1%}" if share else "not known: no datasheet"
    return "" if spread < SPREAD else f"expected a spread under {SPREAD:.0%}", seen


def out_of_memory(facts: Facts) -> Judged:
    code = facts["failure"]
    seen = f"{code}; {facts['kept_bytes'] / 2**20:.0f} MiB still in use"
    if code != "out_of_memory":
        return "expected out_of_memory", seen
    return _left(facts), seen


def killed(facts: Facts) -> Judged:
    seen = f"after {facts['seconds']:.1f} s {facts['processes']} processes, "
    seen += f"{facts['kept_bytes'] / 2**20:.0f} MiB"
    return _left(facts), seen


def _left(facts: Facts) -> str:
    if facts["processes"]:
        return f"processes are left after {SECONDS_TO_END} s"
    kept = facts["kept_bytes"] > KEPT_BYTES
    return f"memory is in use after {SECONDS_TO_END} s" if kept else ""


def _rates(facts: Facts, name: str) -> list[float]:
    return [peak[name] for peak in facts["peaks"]]


def _all(judge: Callable[[Facts], Judged], found: tuple[Facts, ...]) -> Judged:
    """Join the problems and the observations of all."""
    judged = [judge(one) for one in found]
    wrong = dict.fromkeys(wrong for wrong, _ in judged if wrong)
    return "; ".join(wrong), "; ".join(dict.fromkeys(seen for _, seen in judged))


PRECISIONS = ("fp32", "amp", "bf16")
CHECKS = (
    Check("NVML and the framework have the same GPU", ("device",), identity),
    Check("energy rises over a matrix product", ("device",), energy),
    Check("an event has not passed just after launch", ("device",), not_passed),
    Check("events sum up to the host's window, products", ("device",), events, on_cpu=True),
    Check("measured peaks are repeatable", ("peak bf16",), repeatable),
    Check("measured peaks are in the chip's range", ("peak bf16",), plausible),
    Check("TF32 raises the fp32 peak", ("peak fp32", "peak tf32"), tf32),
    Check("events sum up to the host's window, training", PRECISIONS, window),
    Check("no synchronization in the window", PRECISIONS, no_synchronization),
    Check("synthetic batches stay on the GPU", PRECISIONS, batches_stay),
    Check("precision and TF32 are as asked", PRECISIONS, precisions, on_cpu=True),
    Check("losses of fp32, amp and bf16 agree", PRECISIONS, losses, on_cpu=True),
    Check(
        "an overflow in the first step ruins no weight", ("overflow",), overflow, on_cpu=True
    ),
    Check("static agrees with eager", ("bf16", "static"), static, on_cpu=True),
    Check("a profile's parts add up to a step", ("profile",), parts, on_cpu=True),
    Check("BERT trains", ("bert",), trained, on_cpu=True),
    Check("DALI gives its CPU pipeline's batches", ("dali",), dali, on_cpu=True),
    Check("a batch too large is out_of_memory", ("out of memory",), out_of_memory),
    Check("a killed driver leaves nothing on the GPU", ("killed",), killed, on_cpu=True),
    Check("a whole measurement is steady", ("measurement",), measurement),
)
