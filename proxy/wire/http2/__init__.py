"""HTTP/2 (RFC 9113) and HPACK (RFC 7541): bytes to streams and heads; pure, no I/O.

Start with `session`: it is fed what came, tells streams about it, and gathers what is to be sent. `heads` are what
other rooms see of a stream's fields.
"""
