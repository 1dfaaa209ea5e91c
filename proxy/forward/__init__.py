"""Floor 2: the forwarding of one call under one policy."""
