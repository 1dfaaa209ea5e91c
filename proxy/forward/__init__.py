"""Floor 2: the corridor. One call through one policy."""
