"""HTTP/2 (RFC 9113) and HPACK (RFC 7541): bytes to streams and heads; pure, without I/O.

Start with `session`: it is fed the bytes that came, reports events to its streams, and gathers what is to be sent.
Other packages see the heads and trailers of a stream as the classes of `heads`.
"""
