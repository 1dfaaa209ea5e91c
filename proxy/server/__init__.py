"""The server (floor 3): listeners, and the connections of apps."""
