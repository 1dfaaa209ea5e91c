"""A call: its state machine, the flows of its attempts, what it pays, and how it ends."""
