"""JAX; trains the networks of perfkit.core.frameworks.functional. `parallel.py`
trains with several processes, `sharding.py` divides the parameters among them."""
