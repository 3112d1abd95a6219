"""Counts keys: how many are distinct, which are frequent, and how often each occurs."""
