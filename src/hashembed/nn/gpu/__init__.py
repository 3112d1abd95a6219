"""The layers and the row optimizers on a GPU: calls of the Triton kernels in `kernels/`.

`launch.py` has the passes of the layers, `places.py` finds the rows that tokens read, `rows.py`
updates rows, `tiles.py` chooses sizes, `direct.py` launches kernels. `kernels/layout.py` declares
every buffer that host and kernels share. docs/how-it-works/gpu-step.md follows one training step
from start to end.

Terms, in addition to the glossary in docs/how-it-works/glossary.md:

rule            what happens to the gradient of a row: it is stored, or it updates the row
lazy rule       a rule under which rows without a gradient move too: Adam, AdamW, momentum
behind          said of a row that has missed steps of a lazy rule; it *catches up* when it is read
record, stamp   the state of a row under a lazy rule; the stamp is the step of its last update
history         for each past step, how far a row that was last updated then has moved since
numbers         the hyperparameters of one step, in float64, where kernels read them
key             in `places.py`: the row of E or P that a token reads, in one number for the sort
term            what one component of a token adds to the gradient of one row
slot            the number of a distinct row among the rows that a batch reads
short, long     said of rows: few enough terms for one program to add up, or more
call            one batch, among several that are prepared together
cursor          which prepared batch the present step reads, a counter on the GPU
double buffer   two buffers of prepared batches: steps read one while the other is filled
capacity        tokens for which a batch has memory
finite          a flag on the GPU: 1 until a loss of the member is not finite, then 0
side stream     a CUDA stream for work that overlaps with the current stream
"""
