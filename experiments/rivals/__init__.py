"""The bag-of-words models of table 3 that hash embeddings are held against."""
