"""Floor 1: the reporting of what happened to every observer."""
