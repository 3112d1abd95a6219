"""A run (method, set, seed) and the store of all runs that were made."""
