"""Embeddings of user and item ids under a budget: data, tables, models, training, search."""
