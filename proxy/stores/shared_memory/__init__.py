"""What the worker processes of one machine share: records in memory that they all map, each with its own lock."""
