"""Models on the hub: `huggingface_hub`'s own mixin around a classifier.

A repository has three files. Only model.safetensors is ever read. The hub counts downloads of
config.json, so that is asked for, too, as the mixin does.

| file | what it is |
|---|---|
| model.safetensors | the model file that `TextClassifier.save` writes |
| README.md | the model card |
| config.json | the settings in readable form, for people and other programs |
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from hashembed.classify import header_facts as facts
from hashembed.classify.card import CardFacts, model_card
from hashembed.classify.model_file import load_classifier, save_classifier
from hashembed.classify.trained import TrainedClassifier
from hashembed.core.printable import printable
from hashembed.core.writing import write_whole
from hashembed.engine.tensor_file import read_header

try:
    from huggingface_hub import ModelHubMixin, constants, errors, hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars
except ImportError:
    message = 'models on the hub need huggingface_hub: pip install "hashembed[hub]"'
    raise ImportError(message) from None

C = TypeVar("C", bound=TrainedClassifier)

MODEL, CARD, CONFIG = "model.safetensors", "README.md", "config.json"
LOG_IN = "log in (hf auth login), or give a token"


class HubError(OSError):
    """The hub did not give or take a model. The message says what to do."""


class HubModel(ModelHubMixin):
    """A classifier as the hub's mixin wants it: what the hooks below save and load."""

    classifier: TrainedClassifier
    bits: int | None = None
    for_training: bool = False
    card: CardFacts = CardFacts()
    name: str | None = None  # owner/name, if it is known
    force: bool = False  # replace a card that exists
    own_config: bool = True  # False: the mixin writes the user's `config=`

    def _save_pretrained(self, save_directory: Path) -> None:
        save_classifier(self.classifier, save_directory / MODEL, self.for_training, self.bits)
        header = read_header(save_directory / MODEL)
        if self.own_config:
            write_whole(save_directory / CONFIG, config_bytes(header))
        if self.force or not (save_directory / CARD).exists():
            card = model_card(header, self.name or save_directory.resolve().name, self.card)
            write_whole(save_directory / CARD, card.encode())

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        classifier_class: type[C],
        threads: int | None,
    ) -> C:
        if os.path.isdir(model_id):
            path = os.path.join(model_id, MODEL)
            if not os.path.isfile(path):
                raise HubError(f"{model_id} has no file {MODEL}, so it is no model of hashembed")
        elif os.path.isfile(model_id):
            raise HubError(f"{model_id} is a file: load it by TextClassifier.load")
        else:
            path = download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        return load_classifier(classifier_class, path, threads)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        **model_kwargs: Any,
    ) -> Any:
        """As the mixin's, but config.json is not read: the model file holds everything."""
        return cls._from_pretrained(
            model_id=os.fspath(pretrained_model_name_or_path),
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
            **model_kwargs,
        )


def save_pretrained(
    classifier: TrainedClassifier,
    folder: str | os.PathLike[str],
    card: dict[str, Any] | None,
    saving: dict[str, Any],
    options: dict[str, Any],
) -> str | None:
    """`TextClassifier.save_pretrained`: `saving` are our options, `options` the mixin's."""
    name = options.get("repo_id")
    model = _hub_model(classifier, name, card, saving, options)
    wanted = name or os.path.basename(os.path.abspath(folder))
    with explaining(f"upload {wanted}", str(wanted)):
        return model.save_pretrained(Path(folder), **options)


def push_to_hub(
    classifier: TrainedClassifier,
    repo_id: str,
    card: dict[str, Any] | None,
    saving: dict[str, Any],
    options: dict[str, Any],
) -> str:
    """`TextClassifier.push_to_hub`."""
    model = _hub_model(classifier, repo_id, card, saving, options)
    with explaining(f"upload {repo_id}", repo_id):
        return model.push_to_hub(repo_id, **options)


def _hub_model(
    classifier: TrainedClassifier,
    name: str | None,
    card: dict[str, Any] | None,
    saving: dict[str, Any],
    options: dict[str, Any],
) -> HubModel:
    classifier._fitted()
    model = HubModel()
    model.classifier, model.card, model.name = classifier, CardFacts(**(card or {})), name
    model.own_config = options.get("config") is None
    for option, value in saving.items():
        setattr(model, option, value)
    return model


def config_bytes(header: dict[str, Any]) -> bytes:
    """config.json: what the header tells, without the history of training."""
    meta = header["meta"]
    several = meta["label_form"] != "single"
    config = {
        "library_name": "hashembed",
        "task": "text-classification",
        "problem_type": f"{'multi' if several else 'single'}_label_classification",
        "labels": meta["classes"],
        "text": meta["text"],
        "engine": meta["engine"],
        "parameters": facts.count_parameters(header),
        "training_texts": meta["texts_seen"],
        "file_format": header["format"],
        "hash_version": header["hash"],
    }
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode("utf8", "backslashreplace")  # JSON spells half a character so


def download(model_id: str, *, revision: str | None = None, **options: Any) -> str:
    """The model file of a repository, in the cache of the hub; `options` of `hf_hub_download`."""
    from importlib.metadata import version

    at = "" if revision is None else f" (revision {revision})"
    own = {"library_name": "hashembed", "library_version": version("hashembed")}
    options |= {"revision": revision, **own}
    # Before the model: the cache remembers the commit that was asked for last.
    with suppress(*_OF_THE_HUB, ValueError):  # a model without it is a model, too
        hf_hub_download(model_id, CONFIG, **options)
    with explaining(f"download {model_id}{at}", model_id, revision):
        return str(hf_hub_download(model_id, MODEL, **options))


def hide_progress() -> None:
    """Show no bars while files are downloaded."""
    disable_progress_bars()


# --- errors ------------------------------------------------------------------------------------


_OF_THE_HUB = (
    errors.EntryNotFoundError,
    errors.HFValidationError,
    errors.HTTPError,  # type: ignore[attr-defined] # of the HTTP library: also no connection
    errors.LocalTokenNotFoundError,
    errors.OfflineModeIsEnabled,
)


@contextmanager
def explaining(what: str, model_id: str, revision: str | None = None) -> Iterator[None]:
    """Turn an error of the hub into one sentence; `what` is what was tried."""
    try:
        yield
    except _OF_THE_HUB as error:
        # Any failure to ask the hub arrives as a file that is not here.
        local = isinstance(error, errors.LocalEntryNotFoundError)
        reason = error.__cause__ if local and error.__cause__ is not None else error
    except ValueError as error:  # such as: force_download without a connection
        if not isinstance(error.__cause__, _OF_THE_HUB):
            raise
        reason = error.__cause__
    else:
        return
    raise HubError(printable(f"cannot {what}: {_explained(reason, model_id, revision)}"))


def _explained(error: BaseException, model_id: str, revision: str | None) -> str:
    endpoint = constants.ENDPOINT
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.HFValidationError):
        return f"{model_id} is neither a folder nor a name on the hub, such as owner/name"
    if isinstance(error, errors.GatedRepoError):
        return f"its owner gives access on request. Ask on the page of the model, then {LOG_IN}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{endpoint} has no such model. Check the name. If the model is private, {LOG_IN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision {revision}. Give a branch, a tag or a commit, or leave it out"
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return (
            "it is not on this machine, and downloads are switched off. Allow them once: without "
            "local_files_only and HF_HUB_OFFLINE"
        )
    if isinstance(error, errors.EntryNotFoundError):
        return f"it has no file {MODEL}, so it is no model of hashembed"
    if isinstance(error, errors.FileMetadataError):
        return f"{endpoint} does not answer like a hub. Check HF_ENDPOINT and proxies"
    if isinstance(error, errors.LocalTokenNotFoundError) or status in (401, 403):
        return f"{endpoint} gives no permission. Check who you are (hf auth whoami), {LOG_IN}"
    if status is not None:
        said = getattr(error, "server_message", None) or "it gave no reason"
        return f"{endpoint} answered {status}: {said}"
    return (
        f"found no connection to {endpoint} ({type(error).__name__}). Check the network, or load a "
        "folder that save_pretrained wrote"
    )
