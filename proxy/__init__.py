"""redrive: a retrying HTTP sidecar. See docs/architecture.md for the floors and laws."""

__version__ = "0.1.0"
