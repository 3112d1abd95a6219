"""The layers and the row optimizers on the CPU: kernels, and how tensors reach them."""
