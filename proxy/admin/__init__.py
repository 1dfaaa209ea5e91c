"""Floor 3: the admin port, its pages about the process, and a few actions."""
