"""What scikit-learn expects of an estimator: parameters, tags, whether it is fitted.

This module does not import scikit-learn unless scikit-learn calls it.
"""

import sys
from importlib import import_module
from typing import Any, Self

from hashembed.core.checks import one_of


class NotFittedError(ValueError, AttributeError):
    """The model was used before it was trained."""


class Estimator:
    """A classifier, or a transformer, whose constructor stores its keyword arguments as attributes.

    Attributes that end in an underscore are set by training.
    """

    _estimator_type = "classifier"
    _fit_methods = "fit or partial_fit"

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        """The constructor's arguments and their defaults."""
        return dict(cls.__init__.__kwdefaults__ or {})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments."""
        for name, value in params.items():
            if name not in self._parameters():
                raise ValueError(
                    f"unknown parameter {name!r} of {type(self).__name__}, expected one of "
                    f"{', '.join(self._parameters())}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._parameters()
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """Describe the estimator to scikit-learn."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=False),
            transformer_tags=TransformerTags(preserves_dtype=["float32"]),
            classifier_tags=ClassifierTags(multi_class=True, multi_label=True),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` returns: "default" is an array, "pandas" a data frame."""
        if transform is not None:
            one_of("transform", transform, ("default", "pandas"))
            self._sklearn_output_config = {"transform": transform}  # copied by `clone`
        return self

    def _output(self, columns: Any, given: Any) -> Any:
        """Columns (n, d) as `set_output` has chosen; a data frame keeps the input's index."""
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if wanted == "default":
            return columns
        names = self.get_feature_names_out().tolist()
        pd = import_module("pandas")
        index = given.index if isinstance(given, pd.Series | pd.DataFrame) else None
        return pd.DataFrame(columns, index=index, columns=names)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the column names of `transform`."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if self.__sklearn_is_fitted__():
            return
        error: type[Exception] = NotFittedError
        if "sklearn" in sys.modules:
            error = sys.modules["sklearn.exceptions"].NotFittedError
        name = type(self).__name__
        raise error(f"this {name} is not fitted yet: call {self._fit_methods} first")
