"""The layers and the row optimizers on a GPU: how tensors reach the Triton kernels."""
