"""Facts of a log that follow from others, by the rules of facts.toml."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

MODEL_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
"""Facts whose product is the number of devices that share one batch."""


@dataclass(frozen=True)
class Rule:
    """A fact that is the quotient of the products of other facts."""

    fact: str
    how: str
    """the formula: global_batch_size / (ranks x accumulate)"""
    factors: Sequence[str]
    divisors: Sequence[str]
    is_of_replicas: bool
    """whether the rule holds only if each device has a batch of its own"""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Rule":
        """Return a rule of facts.toml."""
        how = entry["how"]
        above, _slash, below = how.partition("/")
        return cls(
            fact=entry["fact"],
            how=how,
            factors=re.findall(r"\w\w+", above),
            divisors=re.findall(r"\w\w+", below),
            is_of_replicas=entry.get("only") == "data parallel",
        )

    def value(self, known: Mapping[str, int], assumed: Mapping[str, int]) -> int:
        """Return the fact, given the known facts and values of unknown ones; 0 if a fact is
        unknown, the division leaves a rest, or devices share batches."""
        numbers = {**assumed, **known}
        sharing = [known.get(name, 0) for name in MODEL_PARALLEL]
        if any(sharing):
            # Logs that name one of these sizes leave out those that are 1.
            numbers = {**dict.fromkeys(MODEL_PARALLEL, 1), **numbers}
        if self.is_of_replicas and max(sharing) > 1:
            return 0
        dividend = prod(numbers.get(name, 0) for name in self.factors)
        divisor = prod(numbers.get(name, 0) for name in self.divisors)
        if divisor and dividend % divisor == 0:
            return dividend // divisor
        return 0
