"""The readers and writers of messages (floor 0): bytes to messages and back, pure, without I/O. Each protocol has a
room of its own; the modules here are shared by both.

Other rooms import heads from `head` and the exceptions of the readers from `errors`; the readers are in `http1.parser`
and `http1.body`.
"""
