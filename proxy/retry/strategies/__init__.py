"""The built-in strategies: their definitions, their backoff, and their classes for Python programs."""
