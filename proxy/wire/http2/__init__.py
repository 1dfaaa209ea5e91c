"""HTTP/2 (RFC 9113) and HPACK (RFC 7541): bytes to streams and heads; pure, without I/O.

Start with `session`: it is fed the bytes that came, reports events to its streams, and gathers what is to be sent.
Other rooms see a stream's fields as the classes of `heads`.
"""
