"""Floor 1: one attempt on the wire. Knows nothing of retries."""
