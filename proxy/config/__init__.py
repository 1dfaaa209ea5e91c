"""Floor 1: the configuration, from YAML to frozen policies; every error has its file and line."""
