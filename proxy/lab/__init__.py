"""Floor 4: policy tests, simulation, explain: the same deciding core on a virtual clock."""
