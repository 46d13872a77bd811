"""Sets of intervals of time: begin and end, sorted, without overlap."""

from collections.abc import Iterable

Intervals = list[tuple[float, float]]


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Return the times that lie in any of the intervals."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def without(intervals: Intervals, taken: Intervals) -> Intervals:
    """Return the times of `intervals` that do not lie in `taken`."""
    left: Intervals = []
    first = 0
    for begin, end in intervals:
        free_from = begin
        while first < len(taken) and taken[first][1] <= begin:
            first += 1
        at = first
        while at < len(taken) and taken[at][0] < end:
            taken_begin, taken_end = taken[at]
            if free_from < taken_begin:
                left.append((free_from, taken_begin))
            free_from = taken_end
            at += 1
        if free_from < end:
            left.append((free_from, end))
    return left


def length(intervals: Intervals) -> float:
    return sum(end - begin for begin, end in intervals)
