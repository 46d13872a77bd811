"""Makes what tests read: results, logs and clusters."""
