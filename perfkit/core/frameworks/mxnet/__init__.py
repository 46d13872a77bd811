"""MXNet; trains the networks of perfkit.core.frameworks.functional."""
