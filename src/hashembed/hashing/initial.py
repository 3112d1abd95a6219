"""Standard deviations of the initial values, as in the authors' code.

Importance weights start small: a token has almost no effect until training finds that it matters.
"""

WEIGHT_STD = 0.1
IMPORTANCE_STD = 0.0005
