"""The protocol of a model in the GPU steps. `DeepModel` has it, but imports the steps itself."""

from typing import Protocol

import torch
from torch import Tensor

from hashembed.engine.labels import Labels
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.network import Network


class Member(Protocol):
    """A model, alone or as a member of an ensemble. Members that train together share batches."""

    spec: HashSpec
    device: torch.device
    multilabel: bool
    network: Network
    optimizers: list[torch.optim.Optimizer]  # that of the tables' rows, then that of the layers
    steps: int  # batches trained so far
    version: int  # larger when tensors of the model were replaced: older graphs are then invalid

    @property
    def num_classes(self) -> int:
        """C."""

    def use_class_weights(self, labels: Labels) -> None:
        """Train with the class weights of these labels from now on."""

    def set_rate(self, rate: float | Tensor) -> None:
        """The learning rate of the next step."""

    def losses(self, logits: Tensor, truth: Tensor) -> Tensor:
        """The loss of each document."""

    def scale(self, batch_size: int) -> float:
        """What losses are multiplied by before they are added up."""

    def dropout_mask(self, n: int, step: Tensor) -> Tensor | None:
        """Which of n tokens the dropout leaves."""

    def update(self, finite: Tensor | None = None) -> None:
        """Update by the gradients of the backward pass, unless `finite` is 0."""
