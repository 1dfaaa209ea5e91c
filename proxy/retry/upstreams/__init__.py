"""The choice of an attempt's endpoint and credential, and what is known of each."""
