"""A module that knows its hash functions and describes them in its buffers.

The specification, in plain Python integers, defines the hash. The buffers `hash_seeds` and
`hash_spec` describe it. So every checkpoint contains the hash, and DDP gives all ranks the same
one. Averaging buffers like weights (`AveragedModel(use_buffers=True)`) changes the buffers, but not
the hash.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from hashembed.hashing.spec import HASH_VERSION, INDEXINGS, HashSpec, derive_seeds
from hashembed.nn.columns import Columns, described
from hashembed.nn.ops import indexing


def draw_seed() -> int:
    """A seed from torch's global generator, which `torch.manual_seed` sets."""
    with _disable_current_modes():  # FakeTensorMode draws no numbers
        return int(torch.randint(2**32, (), dtype=torch.int64, device="cpu"))


@torch.inference_mode(False)  # a later call may want gradients
def make_buffers(
    spec: HashSpec,
    device: torch.device | str | None = None,
    columns: Columns | None = None,
) -> dict[str, Tensor]:
    """`hash_seeds` (k + 1,) and `hash_spec` (5,), or longer if there are columns."""
    named = [
        HASH_VERSION,
        INDEXINGS.index(spec.indexing),
        spec.num_embeddings,
        spec.num_buckets,
        spec.seed,
        *(columns.numbers if columns is not None else ()),
    ]
    seeds = derive_seeds(spec.seed, spec.num_hashes)
    return {
        "hash_seeds": torch.tensor(seeds.tolist(), dtype=torch.int64, device=device),
        "hash_spec": torch.tensor(named, dtype=torch.int64, device=device),
    }


def _differences(hash_spec: Tensor, spec: HashSpec, columns: Columns | None) -> list[str]:
    """How a saved `hash_spec` differs from a layer's; the seed does not count."""
    version, number, num_embeddings, num_buckets, _, *saved_columns = hash_spec.tolist()
    name = INDEXINGS[number] if 0 <= number < len(INDEXINGS) else str(number)
    own_columns = columns.numbers if columns is not None else []
    pairs = (
        ("hash version", version, HASH_VERSION),
        ("indexing", name, spec.indexing),
        ("num_embeddings", num_embeddings, spec.num_embeddings),
        ("num_buckets", num_buckets, spec.num_buckets),
        ("columns", described(saved_columns), described(own_columns)),
    )
    return [f"{what} {saved} (this layer: {own})" for what, saved, own in pairs if saved != own]


def _with_saved_seed(spec: HashSpec, hash_spec: Tensor) -> HashSpec:
    return replace(spec, seed=hash_spec.tolist()[4])


class HashedModule(nn.Module):
    """Keeps `spec`, the buffers that describe it and the seeds that kernels read consistent."""

    spec: HashSpec
    hash_seeds: Tensor  # (k + 1,)
    hash_spec: Tensor  # version, indexing, K, B, seed; the number of columns, their sizes
    _columns: Columns | None = None
    _seeds: Tensor  # (k + 1,), what the kernels read: not a buffer, so it is never averaged
    _seen: tuple[Tensor, int | None]  # `hash_seeds` when last checked, and its version
    _shared = False  # whether all ranks of a mesh have agreed on the hash

    def __init__(
        self, spec: HashSpec, device: torch.device | str | None, columns: Columns | None = None
    ) -> None:
        nn.Module.__init__(self)  # not super(): layers with sparse gradients have another base
        if columns is not None:
            self._columns = columns
        for name, value in make_buffers(spec, device, columns).items():
            self.register_buffer(name, value)
        self._set_hash(spec)

    def _set_hash(self, spec: HashSpec) -> None:
        """From now on ids are hashed by `spec`, and the buffers say so."""
        self.spec = spec
        own = make_buffers(spec, self.hash_seeds.device, self._columns)
        for name, value in own.items():
            _overwrite(getattr(self, name), value)
        seeds = self.__dict__.get("_seeds")
        if seeds is None or seeds.device != self.hash_seeds.device:
            self._seeds = own["hash_seeds"]
        else:
            _overwrite(seeds, own["hash_seeds"])  # in place: compiled graphs read it
        self._seen = self.hash_seeds, _version(self.hash_seeds)

    def _current_seeds(self) -> Tensor:
        """The seeds of the hash functions (k + 1,), on the device of the buffers."""
        if torch.compiler.is_compiling():
            # `is_exporting()` is always true for the compiler of torch 2.11.
            if not torch.compiler._is_exporting_flag:
                return self._seeds_in_graph()
        elif torch._C._are_functorch_transforms_active():
            if self.hash_seeds is not self._seen[0]:
                return self.hash_seeds  # `torch.func` put one model of a stack in place
        elif self._was_written():
            self._reconcile()
        return self._seeds

    def _seeds_in_graph(self) -> Tensor:
        """What `_reconcile` would find, inside a compiled graph, where buffers have no values."""
        if self._seeds.is_meta:  # `torch.func` calls models without values
            return self.hash_seeds
        derived = indexing.derive_seeds(self.hash_spec[4], self.spec.num_hashes)
        intact = (derived == self.hash_seeds).all()
        return torch.where(intact, self.hash_seeds, self._seeds)

    def _was_written(self) -> bool:
        """Whether other code wrote to `hash_seeds`, moved or replaced it."""
        buffer, version = self._seen
        hash_seeds = self.hash_seeds
        if hash_seeds is not buffer or hash_seeds.device != self._seeds.device:
            return True
        return version is not None and version != _version(hash_seeds)

    def _reconcile(self) -> None:
        """Adopt a valid hash that was written to the buffers; otherwise restore ours.

        DDP writes the first rank's hash to the buffers of all others. Averages and noise are not a
        valid hash: their seeds do not belong together.
        """
        if self.hash_seeds.is_meta:
            self._set_hash(self.spec)
        if not _has_values(self.hash_seeds) or _is_capturing(self.hash_seeds):
            return
        buffer, version = self._seen
        rewritten = self.hash_seeds is buffer and version != _version(buffer)
        self._set_hash(self._hash_in_buffers() or self.spec)
        if rewritten and self.hash_seeds.is_cuda:
            # DDP writes the same before every step; checking each time would stall the GPU.
            self._seen = self.hash_seeds, None

    def _hash_in_buffers(self) -> HashSpec | None:
        if _differences(self.hash_spec, self.spec, self._columns):
            return None
        found = _with_saved_seed(self.spec, self.hash_spec)
        own = make_buffers(found, self.hash_seeds.device)
        intact = torch.equal(own["hash_seeds"], self.hash_seeds)
        return found if intact else None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Parameter) and hasattr(value, "device_mesh") and not self._shared:
            self._share_hash(value.device_mesh)

    def _share_hash(self, mesh: Any) -> None:
        """Give every rank of a mesh the first one's hash.

        `fully_shard` broadcasts nothing. Ranks that drew their seeds from generators in different
        states would put different tokens into the rows that they share.
        """
        self._shared = True
        if mesh.get_coordinate() is None:
            return
        seed = torch.tensor([self.spec.seed], device=mesh.device_type)
        for dim in range(mesh.ndim):
            dist.broadcast(seed, group=mesh.get_group(dim), group_src=0)
        self._set_hash(replace(self.spec, seed=int(seed)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        was_meta = self.hash_seeds.is_meta
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if was_meta:  # `to_empty` leaves noise in the buffers
            self._set_hash(self.spec)
        elif self._was_written():
            self._reconcile()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if "_seeds" not in state:  # pickled by version 0.1
            self._set_hash(self.spec)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        self._reconcile()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the saved hash functions, or refuse: ids must never silently change vectors."""
        found = state_dict.get(prefix + "hash_spec")
        spec = self.spec
        if found is None:
            one_by_one = len(state_dict) == 1 and not prefix  # the hash is loaded separately
            if prefix + "weight" in state_dict and not one_by_one:
                error_msgs.append(
                    f'"{prefix}hash_spec" is missing: without it the hash functions that the '
                    "weights were trained with are unknown"
                )
                return
        elif not found.is_meta:
            differ = _differences(found, spec, self._columns)
            if differ:
                error_msgs.append(
                    f'"{prefix}hash_spec" was saved with {", ".join(differ)}: the ids would get '
                    "other vectors; build the layer with the saved settings"
                )
                return
            spec = _with_saved_seed(spec, found)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._set_hash(spec)


def _overwrite(tensor: Tensor, value: Tensor) -> None:
    if _has_values(tensor) and not torch.equal(tensor, value):
        tensor.copy_(value)


def _has_values(tensor: Tensor) -> bool:
    """Whether this is a plain tensor with memory, not a tracer's."""
    return type(tensor) is Tensor and not tensor.is_meta


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
