"""Floor 3: the admin port, what is going on inside, and a few actions."""
