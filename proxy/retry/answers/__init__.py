"""The reading of answers: classes of failures, pushback, streams of events, and the other things that a policy looks
for in an answer.
"""
