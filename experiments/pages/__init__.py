"""Runs -> the result pages: templates whose numbers come from the runs."""
