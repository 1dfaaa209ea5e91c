"""Floor 3: the doors. Listeners, connections, admin."""
