"""Floor 0: bytes to messages. A strict HTTP/1 grammar; pure, no I/O.

Three doors: `grammar` (readers of heads, and what they raise), `head` (heads), `body` (readers of bodies, re-framing).
"""
