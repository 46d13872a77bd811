"""Dimensions of the networks in perfkit.core.frameworks.networks."""
