"""The tools that are compared: each trains on one file and then answers for another.

A tool is a class with `settings` to choose among, `train(path, setting)`, `predict(texts)`,
`predict_one(text)` and `save(path) -> bytes`. Files are in fastText's format, a document a line.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path
from zlib import crc32

THREADS = int(os.environ.get("BENCH_THREADS", "2"))


def read_lines(path):
    labels, texts = [], []
    with open(path, encoding="utf8") as file:
        for line in file:
            label, _, text = line.rstrip("\n").partition(" ")
            labels.append(label.removeprefix("__label__"))
            texts.append(text)
    return labels, texts


class Hashembed:
    """TextClassifier with its defaults."""

    settings = ({},)

    def train(self, path, setting):
        from hashembed.classify.classifier import TextClassifier
        from hashembed.readers import read_fasttext

        labels, texts = read_fasttext(path)
        self.model = TextClassifier(threads=THREADS, **setting).fit(texts, labels)

    def predict(self, texts):
        return self.model.predict(texts).tolist()

    def predict_one(self, text):
        return self.model.predict([text])[0]

    def save(self, path):
        self.model.save(path)
        return path.stat().st_size

    def command(self, train, model, setting):
        return [sys.executable, "-m", "hashembed", "train", train, "-o", model, "--quiet"]


class HashembedFast(Hashembed):
    """The same by rules, without a race."""

    settings = ({"effort": "fast"},)


class HashembedSubwords(Hashembed):
    """The same with words and character n-grams."""

    settings = ({"ngrams": (1, 1), "subwords": (2, 4)},)


class FastText:
    """fastText 0.9.2: bigrams, d = 20, five epochs, several learning rates."""

    settings = tuple({"lr": lr} for lr in (0.1, 0.25, 0.5, 1.0))
    orders = (2, 0, 0)  # words, and the shortest and longest character n-grams

    def train(self, path, setting):
        import fasttext

        fasttext.FastText.eprint = lambda x: None
        self.model = fasttext.train_supervised(
            str(path),
            minCount=1,
            thread=THREADS,
            verbose=0,
            dim=20,
            wordNgrams=self.orders[0],
            minn=self.orders[1],
            maxn=self.orders[2],
            **{"epoch": 5, "bucket": 2_000_000, **setting},
        )

    def predict(self, texts):
        # The wrapper's predict() needs NumPy 1; what it wraps does not.
        lines = [text + "\n" for text in texts]
        labels, _ = self.model.f.multilinePredict(lines, 1, 0.0, "strict")
        return [label[0].removeprefix("__label__") if label else "" for label in labels]

    def predict_one(self, text):
        return self.model.f.predict(text + "\n", 1, 0.0, "strict")[0][1].removeprefix("__label__")

    def save(self, path):
        self.model.save_model(str(path))
        return path.stat().st_size

    def command(self, train, model, setting):
        code = (
            "import sys, fasttext; fasttext.train_supervised(sys.argv[1], minCount=1, thread=2, "
            f"verbose=0, epoch=5, dim=20, bucket=2_000_000, wordNgrams=2, lr={setting['lr']})"
            ".save_model(sys.argv[2])"
        )
        return [sys.executable, "-c", code, train, model]


class FastTextSubwords(FastText):
    """fastText with words and character n-grams."""

    orders = (1, 2, 4)


class ScikitLearn:
    """HashingVectorizer and SGDClassifier with log loss."""

    settings = ({"alpha": 1e-6},)

    def train(self, path, setting):
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier
        from sklearn.pipeline import make_pipeline

        labels, texts = read_lines(path)
        self.model = make_pipeline(
            HashingVectorizer(ngram_range=(1, 2), n_features=2**20, token_pattern=r"\S+"),
            SGDClassifier(loss="log_loss", n_jobs=THREADS, random_state=0, **setting),
        ).fit(texts, labels)

    def predict(self, texts):
        return self.model.predict(texts).tolist()

    def predict_one(self, text):
        return self.model.predict([text])[0]

    def save(self, path):
        coefficients = self.model[-1].coef_
        path.write_bytes(coefficients.astype("float32").tobytes())
        return path.stat().st_size


class TfIdf:
    """tf-idf of words and bigrams, and a linear support vector machine."""

    settings = tuple({"C": C} for C in (0.25, 0.5, 1.0))

    def train(self, path, setting):
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline

        labels, texts = read_lines(path)
        vectorizer = TfidfVectorizer(ngram_range=(1, 2))
        self.model = make_pipeline(vectorizer, self.linear(setting)).fit(texts, labels)

    def linear(self, setting):
        from sklearn.svm import LinearSVC

        return LinearSVC(**setting)

    predict, predict_one, save = ScikitLearn.predict, ScikitLearn.predict_one, ScikitLearn.save


class TfIdfLogistic(TfIdf):
    """tf-idf of words and bigrams, and logistic regression."""

    settings = tuple({"C": C} for C in (1.0, 10.0, 100.0))

    def linear(self, setting):
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000, **setting)


class NaiveBayesSVM(TfIdf):
    """NB-SVM (Wang and Manning 2012): presence of words and bigrams, times log-count ratios."""

    settings = tuple({"C": C} for C in (0.01, 0.1, 1.0))

    def train(self, path, setting):
        import numpy as np
        from sklearn.feature_extraction.text import CountVectorizer

        labels, texts = read_lines(path)
        self.vectorizer = CountVectorizer(ngram_range=(1, 2), binary=True)
        seen, truth = self.vectorizer.fit_transform(texts), np.array(labels)
        self.names, self.parts = sorted(set(labels)), []
        for name in self.names[1:] if len(self.names) == 2 else self.names:
            own = truth == name
            ratio = _log_share(seen, own) - _log_share(seen, ~own)
            model = self.linear(setting).fit(seen.multiply(ratio).tocsr(), own)
            self.parts.append((ratio, model))

    def predict(self, texts):
        import numpy as np

        seen = self.vectorizer.transform(texts)
        scores = [m.decision_function(seen.multiply(r).tocsr()) for r, m in self.parts]
        if len(self.parts) == 1:
            scores = [-scores[0], scores[0]]
        return [self.names[i] for i in np.argmax(scores, axis=0)]

    def predict_one(self, text):
        return self.predict([text])[0]

    def save(self, path):
        size = sum(4 * (model.coef_.size + ratio.size) for ratio, model in self.parts)
        path.write_bytes(bytes(size))
        return size


def _log_share(seen, rows):
    import numpy as np

    counts = np.asarray(seen[rows].sum(axis=0)).ravel() + 1.0
    return np.log(counts / counts.sum())


class VowpalWabbit:
    """Vowpal Wabbit: one against all, bigrams, three passes."""

    settings = ({"rate": 0.5},)

    def train(self, path, setting):
        from vowpalwabbit import Workspace

        labels, texts = read_lines(path)
        self.names = sorted(set(labels))
        number = {name: i + 1 for i, name in enumerate(self.names)}
        data = Path(f"{path}.vw")
        with open(data, "w", encoding="utf8") as file:
            for label, text in zip(labels, texts, strict=True):
                file.write(f"{number[label]} | {_escape(text)}\n")
        model = f"{path}.model"
        Workspace(
            f"--oaa {len(self.names)} --loss_function logistic --ngram 2 -b 22 --passes 3 -k "
            f"--holdout_off -l {setting['rate']} --cache_file {path}.cache -d {data} -f {model} "
            "--quiet"
        ).finish()
        self.saved = model
        self.model = Workspace(f"-i {model} -t --quiet")

    def predict(self, texts):
        return [self.predict_one(text) for text in texts]

    def predict_one(self, text):
        return self.names[int(self.model.predict(f"| {_escape(text)}")) - 1]

    def save(self, path):
        return os.path.getsize(self.saved)


class PyTorch:
    """Stock PyTorch: the hashing trick, nn.EmbeddingBag with SparseAdam, two passes."""

    settings = ({"rate": 0.003},)
    rows, dim, batch = 2_000_000, 16, 256

    def train(self, path, setting):
        import torch

        torch.manual_seed(0)
        labels, texts = read_lines(path)
        self.names = sorted(set(labels))
        number = {name: i for i, name in enumerate(self.names)}
        truth = torch.tensor([number[label] for label in labels])
        ids, offsets = self.bags(texts)
        self.bag = torch.nn.EmbeddingBag(self.rows, self.dim, mode="sum", sparse=True)
        torch.nn.init.normal_(self.bag.weight, std=0.01)
        self.head = torch.nn.Linear(self.dim, len(self.names))
        sparse = torch.optim.SparseAdam(self.bag.parameters(), lr=setting["rate"])
        dense = torch.optim.Adam(self.head.parameters(), lr=setting["rate"])
        lengths = offsets[1:] - offsets[:-1]
        for _ in range(2):
            for chosen in torch.randperm(len(truth)).split(self.batch):
                picked = torch.cat([ids[offsets[i] : offsets[i + 1]] for i in chosen])
                starts = lengths[chosen].cumsum(0) - lengths[chosen]
                loss = torch.nn.functional.cross_entropy(
                    self.head(self.bag(picked, starts)), truth[chosen]
                )
                loss.backward()
                for optimizer in (sparse, dense):
                    optimizer.step()
                    optimizer.zero_grad()

    def bags(self, texts):
        import torch

        ids, offsets = [], [0]
        for text in texts:
            words = text.split()
            pairs = map(" ".join, pairwise(words))
            ids += [crc32(gram.encode()) % self.rows for gram in (*words, *pairs)]
            offsets.append(len(ids))
        return torch.tensor(ids), torch.tensor(offsets)

    def predict(self, texts):
        import torch

        with torch.no_grad():
            ids, offsets = self.bags(texts)
            best = self.head(self.bag(ids, offsets[:-1])).argmax(1)
        return [self.names[i] for i in best]

    def predict_one(self, text):
        return self.predict([text])[0]

    def save(self, path):
        import torch

        torch.save([self.bag.state_dict(), self.head.state_dict()], path)
        return path.stat().st_size


def _escape(text):
    return text.replace(":", " ").replace("|", " ")


TOOLS = {
    "hashembed": Hashembed,
    "fastText": FastText,
    "scikit-learn": ScikitLearn,
    "Vowpal Wabbit": VowpalWabbit,
    "PyTorch": PyTorch,
    "hashembed, fast": HashembedFast,
    "tf-idf + SVM": TfIdf,
    "tf-idf + logistic regression": TfIdfLogistic,
    "NB-SVM": NaiveBayesSVM,
    "hashembed, subwords": HashembedSubwords,
    "fastText, subwords": FastTextSubwords,
}
