"""Floor 0: deciding. Pure: no I/O, no clock, no randomness of its own, no asyncio, no logging."""
