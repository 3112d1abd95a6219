"""The layers and the row optimizers on the CPU: Numba kernels, and how tensors reach them."""
