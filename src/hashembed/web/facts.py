"""What a page says about its model: facts from the model file, in plain words."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hashembed.classify.header_facts import count_parameters, describe_bytes, describe_tables

if TYPE_CHECKING:
    from hashembed.classify.trained import TrainedClassifier

FEW = 6  # classes that a summary names
LONG = 40  # characters of a label that a summary names

Fact = tuple[str, str]  # a name and a value


@dataclass(frozen=True)
class Accuracy:
    """The share of texts that the model answers right, and where that was measured."""

    share: float
    measured: str  # "25,000 test texts"
    macro_f1: float | None = None


@dataclass(frozen=True)
class Subject:
    """A model, and the header of its file."""

    classifier: "TrainedClassifier"
    header: dict[str, Any]

    def summary(self) -> str:
        """One sentence."""
        names = [str(label) for label in self.classifier.classes_.tolist()]
        count, several = len(names), self._multilabel
        listed = ", ".join(names[:-1]) + f" and {names[-1]}" if count > 1 else names[0]
        short = count <= FEW and max(map(len, names)) <= LONG
        if several:
            what = f"labels: {listed}" if short else "labels"
            return f"Gives a text any number of {count:,} {what}."
        if not short:
            return f"Tells {count:,} kinds of text apart."
        return f"Tells {count:,} kinds of text apart: {listed}."

    def tiles(self, given: Accuracy | None) -> list[Fact]:
        """The figures that matter most."""
        classifier, size = self.classifier, self.header["bytes"]
        accuracy = given or self._validation()
        found = [
            ("training texts", f"{classifier.texts_seen_:,}"),
            ("labels" if self._multilabel else "classes", f"{len(classifier.classes_):,}"),
        ]
        if accuracy is not None:
            right = "exactly right on" if self._multilabel else "right on"
            found.append((f"{right} {accuracy.measured}", f"{accuracy.share:.1%}"))
        return [*found, ("model", describe_bytes(size))]

    def facts(self, given: Accuracy | None) -> list[Fact]:
        """All the rest."""
        classifier = self.classifier
        plan, text = classifier.engine_plan_, classifier.text_config_
        meta, parameters = self.header["meta"], count_parameters(self.header)
        bits = meta["coded"]["bits"] if meta.get("coded") else 8 if meta.get("packed") else 16
        found = [
            ("Reads", _pieces(text.ngrams, text.subwords)),
            ("Case", "ignored" if text.lowercase else "kept"),
            ("Punctuation", "kept" if text.punctuation == "keep" else "dropped"),
            ("Answers", "any number of labels per text" if self._multilabel else "one per text"),
            ("Parameters", f"{parameters:,}, in {bits} bits"),
            ("Tables", describe_tables(meta)),
        ]
        if text.repeats != "all":
            once = "each n-gram of a text counts once"
            found.insert(3, ("Repeats", once if text.repeats == "once" else "damped"))
        if plan.members > 1:
            found.append(("Members", f"{plan.members}, mean of their {plan.votes}"))
        if given is not None and given.macro_f1 is not None:
            found.append(("Macro F1", f"{given.macro_f1:.1%} on {given.measured}"))
        if classifier.calibration_ is not None:
            rows = classifier.calibration_.rows
            found.append(("Calibrated", f"on {rows:,} texts left out of training"))
        return found

    def meaning(self) -> str:
        """What the numbers of an explanation mean."""
        pieces = "An n-gram is one word or several in a row"
        if self.classifier.text_config_.subwords is not None:
            pieces += ", or some letters of a word: -di- is from the middle of one, <di- from its "
            pieces += "beginning"
        against = "" if self._multilabel else ", compared with the average class"
        return (
            f"Each number is evidence: what an n-gram adds to the score of the class{against}. "
            f"{pieces}. A word has its share of all n-grams that it is part of. The model adds "
            "these numbers up and turns the sums into probabilities; it does nothing else, so they "
            "explain the answer completely. hashembed explain prints the same numbers."
        )

    @property
    def _multilabel(self) -> bool:
        return self.classifier.label_form_ != "single"

    def _validation(self) -> Accuracy | None:
        """The accuracy on texts that training had left out, if it had left any out."""
        history = self.classifier.history_
        share = history.best.validation_accuracy if history.epochs else None
        return None if share is None else Accuracy(share, "texts left out of training")


def _pieces(ngrams: tuple[int, int], subwords: tuple[int, int] | None) -> str:
    """(1, 2), (2, 4) -> "words, 2 words in a row, 2 to 4 letters of a word"."""
    lowest, highest = ngrams
    found = ["words"] if lowest == 1 else []
    if highest > 1:
        orders = f"{max(lowest, 2)} to {highest}" if highest > max(lowest, 2) else f"{highest}"
        found.append(f"{orders} words in a row")
    if subwords is not None:
        low, high = subwords
        lengths = f"{low} to {high}" if high > low else f"{low}"
        found.append(f"{lengths} letters of a word")
    return ", ".join(found)
