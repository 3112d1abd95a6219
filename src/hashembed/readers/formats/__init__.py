"""One file for each format, and how a format, its columns and its header are recognised."""
