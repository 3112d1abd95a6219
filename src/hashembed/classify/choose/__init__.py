"""Chooses what the user left open: n-grams, punctuation, passes, learning rate, members.

Texts and labels come in, options of `TextClassifier` go out. A race trains small models on a part
of the rows and scores them on others (`race.py`); `space.py` lists what it may try, `budget.py` how
much work it may do. Work is counted in n-grams, not in seconds, so that the same seed makes the
same choice on any machine. `search.py` tells what was tried.
"""
