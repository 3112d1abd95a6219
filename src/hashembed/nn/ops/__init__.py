"""The two operations behind the layers: the reference, the dispatch by device, the gradients."""
