"""Floor 3: listeners, connections of apps, the admin port."""
