"""Models in a browser: the prediction pipeline as one JavaScript module, and pages made of it.

In: the character tables of text/, which are part of `module/hashembed.mjs`; classifiers; model
files. Out: the module, which reads model files and gives the answers of `TextClassifier`; HTML
pages of a model (`page.py`) or of explanations (`explained.py`), from the files of `template/`.
May import: all rooms but cli.
"""
