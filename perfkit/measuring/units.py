"""Factors between units without a prefix, in which values are stored, and those of texts."""

TERA, GIGA = 1e12, 1e9
PERCENT = 100
GIB = 2**30
"""Bytes in a GiB."""
