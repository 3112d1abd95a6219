"""Sparse gradients: rows of a table and their values."""

import torch
from torch import Tensor


def sparse_rows(
    rows: Tensor, values: Tensor, shape: tuple[int, ...], *, coalesced: bool = True
) -> Tensor:
    """rows (m,), values (m, width) -> a sparse tensor of a table's shape.

    `torch.sparse_coo_tensor` of torch 2.11 warns that it checks nothing, even if it is told not to.
    This operator is what it calls.

    Args:
        rows: numbers of rows.
        values: their values.
        shape: of the table.
        coalesced: whether each row comes once, in order (default True).
    """
    made: Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        1,
        values.dim() - 1,
        shape,
        rows.unsqueeze(0),
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced,
    )
    return made
