"""State that the worker processes of one machine share: records in memory that all of them map, each with its own
lock.
"""
