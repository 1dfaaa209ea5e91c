"""Floor 0: bytes to messages, and back; pure, no I/O. A room for each protocol, and here what they share.

Other rooms take heads from `head`, and what readers raise from `errors`; the readers are in `http1.parser` and
`http1.body`.
"""
