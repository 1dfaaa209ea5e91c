"""The weather of an upstream: which of its calls are sent now and which wait, because of cooldowns, limits and
outages (contract, section 14).
"""
