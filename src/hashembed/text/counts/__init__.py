"""Counting keys: how many distinct ones, which are frequent, and how often each comes."""
