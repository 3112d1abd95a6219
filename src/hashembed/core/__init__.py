"""Tools that know nothing of embeddings: checks, threads, compiled kernels, files, tables.

Everything else may import from here; nothing here imports from another room.
"""
