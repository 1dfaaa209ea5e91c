"""The state that the calls of one scope (a host, or a tenant) share: how it is made, found again, and removed."""
