"""The initial values of the layers, by the name of what they are for.

All numbers that a name stands for are in `STARTS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hashembed.core.checks import one_of
from hashembed.hashing.initial import IMPORTANCE_STD, WEIGHT_STD
from hashembed.nn.initial import fill_normal
from hashembed.nn.layer_protocol import HashLayer

# A name of `STARTS`; or the standard deviation of a vector's numbers; or their mean and that.
Init = str | float | tuple[float, float]


@dataclass(frozen=True)
class Start:
    """Normal distributions of P and E; E's follows from the standard deviation of the output."""

    importance_mean: float
    importance_std: float
    output_std: Callable[[int], float] | None = None  # d -> of the numbers of an id's vector
    output_mean: float = 0.0
    weight_std: float = 0.0  # of E, where nothing is said of the output

    def of_weight(self, layer: HashLayer) -> tuple[float, float]:
        """Mean and standard deviation of E.

        A number of a vector is the sum of k products P E (one with "concat"), so its mean is
        k m mu and its variance k ((m^2 + s^2)(mu^2 + sigma^2) - (m mu)^2), for P ~ (m, s^2) and
        E ~ (mu, sigma^2).
        """
        if self.output_std is None:
            return 0.0, self.weight_std
        terms = layer.num_hashes if layer.aggregation == "sum" else 1
        m, s = self.importance_mean, self.importance_std
        if layer.importance is None:
            m, s = 1.0, 0.0
        mean = 0.0 if self.output_mean == 0 else self.output_mean / (terms * m)
        wanted = self.output_std(layer.embedding_dim) ** 2 / terms
        return mean, (max(wanted - (s * mean) ** 2, 0.0) / (m**2 + s**2)) ** 0.5


STARTS = {
    # Bags under a linear layer, and networks over many rare ids: the paper's start. An id has
    # almost no effect until training finds that it matters.
    "bag": Start(0.0, IMPORTANCE_STD, weight_std=WEIGHT_STD),
    # Dot products and factorisation machines, where a vector gets its gradient from the other one:
    # larger weights leave the plateau sooner. Measured in docs/results/ids.md.
    "dot": Start(0.0, 0.01, weight_std=WEIGHT_STD),
    # The input of a transformer, tied to the output or not: as large as rows of an output layer.
    # Measured in docs/results/language-model.md: variance one is worse, near zero much worse.
    "transformer": Start(1.0, 0.0, lambda d: d**-0.5),
}


def start_of(init: Init) -> Start:
    """What the argument `init` of a layer stands for."""
    if isinstance(init, str):
        one_of("init", init, tuple(STARTS))
        return STARTS[init]
    mean, std = init if isinstance(init, tuple) and len(init) == 2 else (0.0, init)
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (mean, std))
    if not numbers or not (abs(mean) < math.inf and 0 <= std < math.inf):
        raise ValueError(
            f"init must be one of {', '.join(map(repr, STARTS))}, a standard deviation such as "
            f"0.02, or a mean and a standard deviation, found {init!r:.60}"
        )
    return Start(1.0, 0.0, lambda d: float(std), float(mean))


def fill_tables(layer: HashLayer, generator: torch.Generator) -> None:
    """Draw E and P of a layer."""
    start = start_of(layer.init)
    mean, std = start.of_weight(layer)
    fill_normal(layer.weight, std, generator, mean)
    if layer.importance is not None:
        fill_normal(layer.importance, start.importance_std, generator, start.importance_mean)
