"""State that is kept outside one process: shared by the workers of a machine, or by machines."""
