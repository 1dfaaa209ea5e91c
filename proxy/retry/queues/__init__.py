"""The order of calls that wait, also among several apps (contract, section 17, "Queues")."""
