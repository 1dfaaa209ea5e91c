"""Forwarding of one call under one policy (floor 2)."""
