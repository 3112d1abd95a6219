"""The data sets: files or the Hugging Face hub -> Arrow texts and class numbers."""
