"""Learning online: every text is answered, then learned; one pass in the order of the file.

    python -m benchmarks.bench_online --data FOLDER     -> results/online.csv, online.png

Two streams of news_category: as it comes, and one in which half of the classes appear only after
half of the texts. Progressive accuracy, over all texts so far and over the last 10,000.
"""

import time
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import folders, prepare
from benchmarks.machine import RESULTS, table
from benchmarks.tools import read_lines

NAME, CHUNK, WINDOW = "news_category", 256, 10_000


class Ours:
    def __init__(self, classes):
        from hashembed import TextClassifier

        self.model = TextClassifier(threads=2)

    def answer(self, texts):
        return self.model.predict(texts).tolist() if hasattr(self.model, "model_") else []

    def learn(self, texts, labels):
        self.model.partial_fit(texts, labels)


class Sklearn:
    """HashingVectorizer and SGDClassifier, which needs all classes beforehand."""

    def __init__(self, classes):
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier

        self.classes = classes
        self.vectors = HashingVectorizer(ngram_range=(1, 2), n_features=2**18)
        self.model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0, n_jobs=2)

    def answer(self, texts):
        known = hasattr(self.model, "coef_")
        return self.model.predict(self.vectors.transform(texts)).tolist() if known else []

    def learn(self, texts, labels):
        self.model.partial_fit(self.vectors.transform(texts), labels, self.classes)


class Vowpal:
    """One against all; it needs the number of classes beforehand."""

    def __init__(self, classes):
        from vowpalwabbit import Workspace

        self.number = {name: i + 1 for i, name in enumerate(classes)}
        self.names = classes
        self.model = Workspace(
            f"--oaa {len(classes)} --loss_function logistic --ngram 2 -b 22 --quiet"
        )

    def answer(self, texts):
        return [self.names[int(self.model.predict(f"| {text}")) - 1] for text in texts]

    def learn(self, texts, labels):
        for text, label in zip(texts, labels, strict=True):
            self.model.learn(f"{self.number[label]} | {text}")


class River:
    """Bag of words and multinomial naive Bayes, river's usual text classifier."""

    def __init__(self, classes):
        from river import compose, feature_extraction, naive_bayes

        self.model = compose.Pipeline(
            feature_extraction.BagOfWords(ngram_range=(1, 2)), naive_bayes.MultinomialNB()
        )

    def answer(self, texts):
        return [self.model.predict_one(text) for text in texts]

    def learn(self, texts, labels):
        for text, label in zip(texts, labels, strict=True):
            self.model.learn_one(text, label)


TOOLS = {
    "hashembed": (Ours, 10**9),
    "Vowpal Wabbit": (Vowpal, 10**9),
    "scikit-learn": (Sklearn, 102_400),
    "river": (River, 20_480),
}  # and the number of texts for each: slow tools get fewer


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--tools", nargs="*", default=list(TOOLS))
    options = parser.parse_args()
    files = prepare(Path(options.data) / NAME, options.work / NAME)
    labels, texts = (np.array(column, object) for column in read_lines(files["train"]))
    orders = {"as it comes": np.arange(len(labels)), "half the classes late": late(labels)}
    rows = []
    for stream, order in orders.items():
        for tool in options.tools:
            kind, most = TOOLS[tool]
            rows += run(stream, tool, kind, texts[order][:most], labels[order][:most])
    heads = ["stream", "tool", "texts", "accuracy", "last_10000", "texts_per_second"]
    with table(RESULTS / "online.csv", heads) as add:
        for row in rows:
            add(row)
    plot(rows)


def late(labels):
    """An order in which texts of every second class come only in the second half."""
    classes = np.unique(labels)
    is_late = np.isin(labels, classes[1::2])
    early = np.flatnonzero(~is_late)
    first, rest = early[: len(early) // 2], early[len(early) // 2 :]
    second = np.concatenate([rest, np.flatnonzero(is_late)])
    return np.concatenate([first, np.random.default_rng(0).permutation(second)])


def run(stream, tool, kind, texts, labels):
    model = kind(sorted(set(labels)))
    right = np.zeros(len(labels), bool)
    start, rows = time.perf_counter(), []
    for begin in range(0, len(labels), CHUNK):
        some, truth = texts[begin : begin + CHUNK].tolist(), labels[begin : begin + CHUNK].tolist()
        answers = model.answer(some)
        if answers:
            right[begin : begin + CHUNK] = [a == y for a, y in zip(answers, truth, strict=True)]
        model.learn(some, truth)
        done = begin + len(some)
        if begin // CHUNK % 20 == 19 or done == len(labels):
            recent = right[max(done - WINDOW, 0) : done].mean()
            speed = done / (time.perf_counter() - start)
            rows.append(
                [stream, tool, done, f"{right[:done].mean():.4f}", f"{recent:.4f}", round(speed)]
            )
    print(*rows[-1], sep="  ", flush=True)
    return rows


def plot(rows):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    streams = list(dict.fromkeys(row[0] for row in rows))
    for axes, stream in zip(figure.subplots(1, 2), streams, strict=True):
        for tool in TOOLS:
            points = [(row[2], 100 * float(row[4])) for row in rows if row[:2] == [stream, tool]]
            if points:
                axes.plot(*zip(*points, strict=True), label=tool)
        axes.set(title=stream, xlabel="texts", ylabel="right among the last 10,000, %")
        axes.legend()
    figure.savefig(RESULTS / "online.png", dpi=80)


if __name__ == "__main__":
    main()
