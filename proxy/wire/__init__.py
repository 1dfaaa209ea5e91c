"""Floor 0: bytes to messages. A strict HTTP/1 grammar; pure, no I/O."""
