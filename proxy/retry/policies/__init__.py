"""The definitions that the configuration compiles to (policies, dialects, buckets), and the choice of a call's
policy.
"""
