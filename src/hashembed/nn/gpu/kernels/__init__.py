"""The Triton kernels of the layers and the row optimizers."""
