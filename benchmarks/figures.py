"""The suite's self-benchmark: `make bench`, or python benchmarks/figures.py [FIGURE …].

Figures are ratios within one run, or a cost per step, repeat or measurement. Each is printed,
and stored with its runs in outputs/bench.json. PAIRS=1 runs each with a single pair or run.
"""

import runner
from cost import driver, driver_overhead, timer, transparency
from scale import merging, site, sweep
from script_timer import script
from settings import cpu_settings, inputs, straggler

FIGURES = {
    timer: 0.1,
    transparency: 18,
    script: 4,
    driver: 2,
    driver_overhead: 1,
    cpu_settings: 4,
    inputs: 2,
    straggler: 4,
    merging: 3,
    site: 4,
    sweep: 2,
}
"""Figure -> minutes on 2 cores with PAIRS=10."""

if __name__ == "__main__":
    runner.main(FIGURES)
