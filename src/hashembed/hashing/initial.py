"""Standard deviations of the initial values, as in the authors' code.

Small importance weights: a token counts for nothing until it has been seen to matter.
"""

WEIGHT_STD = 0.1
IMPORTANCE_STD = 0.0005
