"""State outside one process: between the workers of a machine, and between machines."""
