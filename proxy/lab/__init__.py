"""Floor 4: policy tests, simulation and explain, which run the same deciding core on a virtual clock."""
