"""`redrive demo`: a flaky upstream, redrive in front of it, traffic, and a live view (contract, section 2).

Nothing is staged. The proxy is the real command in a process of its own, upstream and apps speak HTTP over
loopback, and every figure is counted by who saw it: calls by the apps, load by the upstream, tokens by redrive.
Three apps make the same calls at the same instants under the same weather: one never retries, one retries at once, as
many times as redrive may, and one leaves it to redrive.
"""

from proxy.lab.demo.show import demo

__all__ = ["demo"]
