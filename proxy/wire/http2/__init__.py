"""HTTP/2 (RFC 9113) and HPACK (RFC 7541): bytes to streams and heads; pure, no I/O.

`session` is the door: it is fed what came, tells streams of it, and gathers what is to be sent. `heads` are what other
rooms see of a stream's fields.
"""
