"""The capacity of an upstream, as far as it can be known: from attempts that were refused, and from the limits that
answers report.
"""
