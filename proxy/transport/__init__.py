"""Floor 1: one attempt on the wire. This room knows nothing of retries."""
