"""Measures the throughput of training: configuration, frameworks, inputs, workers, driver,
results. Nothing here knows that audits, comparisons or pages exist."""
