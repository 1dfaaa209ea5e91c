"""The budgets that attempts are paid from: buckets, rates, tokens of language models, and places among the attempts
under way.
"""
