"""What the worker processes of one machine share: records in memory that they all map, each under a lock of its own."""
