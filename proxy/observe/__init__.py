"""Floor 1: what happened, told to whoever listens."""
