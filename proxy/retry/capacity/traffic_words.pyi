"""The word of shared memory in which a compiled `Traffic` counts: traffic_words.pyx."""

from proxy.retry.capacity.traffic import Traffic

def count_in(traffic: Traffic, words: memoryview, at: int, /) -> None: ...
