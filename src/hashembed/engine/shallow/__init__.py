"""The paper's shallow model on the CPU: bag, linear layer, softmax, fused in one kernel."""
