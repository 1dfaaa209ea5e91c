"""Floor 2: one call through one policy."""
