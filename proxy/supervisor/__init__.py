"""Floor 5: several processes on one port; their parent, and what it and its workers say to each other."""
