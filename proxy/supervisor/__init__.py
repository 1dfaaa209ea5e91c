"""Floor 5: several processes on one port: their parent, the workers, and their messages."""
