"""A list or dictionary of tables that are the columns of one hash layer."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from hashembed.nn.layers import HashEmbedding


def tables_in(group: nn.Module) -> list[Any]:
    """The tables of an `nn.ModuleList` or `nn.ModuleDict` that holds several and nothing else."""
    if type(group) not in (nn.ModuleList, nn.ModuleDict):
        return []
    tables = list(group._modules.values())  # children() would list a twin once
    if len(set(tables)) < 2 or len(set(tables)) != len(tables):
        return []
    plain = all(type(table) in (nn.Embedding, nn.EmbeddingBag) for table in tables)
    return tables if plain else []


class HashColumn:
    """One column of a layer, called like a table of its own."""

    def __init__(self, layer: HashEmbedding, column: int, num_embeddings: int) -> None:
        self.layer, self.column = layer, column
        self.num_embeddings, self.embedding_dim = num_embeddings, layer.embedding_dim

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        """As the layer, for ids of this column."""
        out: Tensor = self.layer(*args, columns=self.column, **options)
        return out


class HashTables(nn.Module):
    """Takes the place of a list or dictionary of tables: `tables[3](ids)`, `tables["user"](ids)`.

    There is one layer behind them, `layer`. Calling the whole with ids (..., columns) looks up all
    columns at once: `tables(ids)` is (..., columns, d).
    """

    def __init__(self, layer: HashEmbedding, group: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self._named = isinstance(group, nn.ModuleDict)
        self._names = list(group._modules)
        self._sizes: list[int] = [table.num_embeddings for table in tables_in(group)]

    def forward(self, *args: Any, **options: Any) -> Tensor:
        """As the layer."""
        out: Tensor = self.layer(*args, **options)
        return out

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, which: int | str) -> HashColumn:
        if self._named:
            number = self._names.index(which) if which in self._names else None
            if number is None:
                raise KeyError(which)
        else:
            number = range(len(self))[int(which)]
        return HashColumn(self.layer, number, self._sizes[number])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._names) if self._named else iter(self.values())

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def keys(self) -> list[str]:
        """The names, in the order of the columns."""
        return list(self._names)

    def values(self) -> list[HashColumn]:
        """The columns."""
        return [HashColumn(self.layer, i, size) for i, size in enumerate(self._sizes)]

    def items(self) -> list[tuple[str, HashColumn]]:
        """Names and columns."""
        return list(zip(self._names, self.values(), strict=True))
