"""Hash embeddings: embedding tables that stay small and take any token."""
