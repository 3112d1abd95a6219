"""Records how much of a stream a model has learned, so that training can resume there."""

from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from hashembed.core.checks import whole_number

_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no row is shifted out of the digest
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class StreamPosition:
    """The number of texts learned from a stream, and a digest of these texts and their labels.

    The digest does not depend on how the stream was cut into batches.
    """

    texts: int = 0
    digest: int = 0

    def after(self, texts: Any, labels: Any) -> "StreamPosition":
        """The position after these rows."""
        digest = self.digest
        for text, label in zip(_listed(texts), _listed(labels), strict=True):
            row = f"{label}\0{text}".encode("utf-8", "surrogatepass")
            number = int.from_bytes(blake2b(row, digest_size=8).digest(), "little")
            digest = (digest * _FACTOR + number) & _MASK
        return StreamPosition(self.texts + len(texts), digest)

    def to_dict(self) -> dict[str, int]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "StreamPosition":
        """The position from `to_dict`."""
        texts, digest = saved.get("texts", 0), saved.get("digest", 0)
        return cls(whole_number("texts", texts, 0, 2**62), whole_number("digest", digest, 0, _MASK))


def _listed(column: Any) -> list[Any]:
    """A column or list as a list of Python values."""
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)
