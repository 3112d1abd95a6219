"""Runs -> tables in Markdown, and plots."""
