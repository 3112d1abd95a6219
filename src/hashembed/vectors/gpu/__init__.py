"""Word vectors on a GPU: the same batches, draws and mathematics as on the CPU.

    pieces.py        the corpus in chunks: a few pieces, thinned out on the CPU
    planning.py      a chunk -> what all of its batches do, sorted; kernels: `plan_kernels.py`
    steps.py         the steps of these batches as a CUDA graph; kernels: `step_kernels.py`
    arrays.py        every array that they share
    trainer.py       plans a chunk while the steps of the chunk before it run

Sums have a fixed order, so every run on one type of GPU gives the same bits. They are not the bits
of the CPU, which adds up in another order.

Terms, in addition to those of `vectors/arrays.py`:

chunk       pieces of the corpus that are planned together
slot        memory with fixed addresses for the plan of a chunk; there are two, used in turn
cursor      which batch of the chunk a step takes, a counter on the GPU
long run    a run with too many items to share a tile with others; it has a program of its own
tile        examples of one group that one program handles, with all negatives of the group
"""
