"""The logistic regression on top of pretrained vectors."""

import numpy as np

from hashembed.classify.pretrained.regression import Problem, fit_logistic, move_logistic


def cases():
    rng = np.random.default_rng(0)
    for n, d, classes, multilabel in ((3, 1, 2, False), (7000, 17, 5, False), (300, 8, 4, True)):
        X = rng.standard_normal((n, d), np.float32)
        truth = np.eye(classes)[rng.integers(0, classes, n)]
        if multilabel:
            truth = rng.integers(0, 2, (n, classes))
        for threads in (1, 3):
            problem = Problem.of(X, truth, None, multilabel, threads)
            found = fit_logistic(problem, 0.1)
            moved = move_logistic(problem, 1.0, found)
            name = f"{n} texts, {classes} classes, {multilabel}, {threads} threads"
            yield name, [found.W, found.bias, moved.W, moved.bias, found(X, threads)]
