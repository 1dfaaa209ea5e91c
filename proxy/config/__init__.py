"""Floor 1: YAML to frozen policies, every error with its line."""
