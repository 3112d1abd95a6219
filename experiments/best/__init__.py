"""The best bag of n-grams in a file of 1, 10 or 100 MB: a search and its peer, fastText."""
