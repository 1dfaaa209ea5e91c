"""The admin port (floor 3): pages that show what the process is doing, and a few actions."""
