"""Floor 3: listeners, and connections of apps."""
