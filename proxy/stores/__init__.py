"""State that lives outside of one process: between the workers of a machine, between machines."""
