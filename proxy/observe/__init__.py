"""Floor 1: what happened, reported to every observer."""
