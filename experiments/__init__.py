"""The experiments of the paper again: every table and what it only says in words."""
