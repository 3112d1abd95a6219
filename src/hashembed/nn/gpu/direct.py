"""Launches compiled Triton kernels without most of Triton's own preparation.

Before each launch Triton binds the arguments by name, describes each of them, and compares all
globals of the kernel with their values at compile time. For our kernels, with up to thirty
arguments, that takes much longer than the launch. `direct` keeps the compiled kernel for each
combination of what Triton compiles for, and calls it with the addresses of the tensors.

How a compiled kernel is called is no public interface of Triton. So the first repeated launch goes
through Triton and notes what Triton calls the compiled kernel with. Only if that is what this
module would have called it with, later launches are direct.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from triton import knobs
from triton.runtime.jit import JITFunction

_RUN = JITFunction.run  # others replace it, for example to compile without a launch
_INT32 = range(-(2**31), 2**31)
_ALIGNMENT = 16  # bytes, a power of 2; Triton compiles for aligned pointers, and for others
_PREFIX = 9  # arguments of a compiled kernel before those of its function: grid, stream, ...


class _Direct(NamedTuple):
    """All that does not change from launch to launch."""

    run: Callable[..., object]
    function: int
    metadata: object
    constants: tuple[object, ...]


class DirectKernel:
    """A kernel that is called as Triton's are: kernel[grid](*arguments, **constants)."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.__doc__, self.__name__ = kernel.__doc__, kernel.__name__
        numbers = [p.num for p in kernel.params if p.do_not_specialize and not p.is_constexpr]
        first = next((p.num for p in kernel.params if p.is_constexpr), len(kernel.params))
        self._tensors = min([first, *numbers])  # our kernels take first tensors, then numbers
        if numbers != list(range(self._tensors, first)):
            raise ValueError(
                f"{self.__name__} must take tensors, then numbers that are not specialized, then "
                "constants"
            )
        self._compiled: dict[tuple[object, ...], Any] = {}  # launched once: not yet checked
        self._direct: dict[tuple[object, ...], _Direct | None] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """The kernel with a grid, to be called."""
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        if JITFunction.run is not _RUN or _is_observed():
            self.kernel[grid](*arguments, **constants)
            return
        device = torch.cuda.current_device()
        tensors, numbers = arguments[: self._tensors], arguments[self._tensors :]
        addresses = [None if t is None else t.data_ptr() for t in tensors]
        types = [None if t is None else t.dtype for t in tensors]
        key = (device, *types, *constants, *constants.values(), _width(numbers), _tails(addresses))
        found = self._direct.get(key)
        if found is None:
            self._launch_by_triton(key, grid, arguments, constants)
            return
        grid_3 = (*grid, 1, 1)[:3]
        stream = torch._C._cuda_getCurrentRawStream(device)
        # No metadata and no hooks: see `_is_observed`.
        run, function, metadata, own = found
        run(*grid_3, stream, function, metadata, None, None, None, *addresses, *numbers, *own)

    def _launch_by_triton(
        self,
        key: tuple[object, ...],
        grid: tuple[int, ...],
        arguments: tuple[Any, ...],
        constants: dict[str, Any],
    ) -> None:
        compiled = self._compiled.get(key)
        run = getattr(compiled, "_run", None)
        if key in self._direct or compiled is None or run is None:
            self._compiled[key] = self.kernel[grid](*arguments, **constants)
            return
        calls: list[tuple[Any, ...]] = []

        def noted(*given: Any) -> object:
            calls.append(given)
            return run(*given)

        compiled._run = noted
        try:
            self.kernel[grid](*arguments, **constants)
        finally:
            compiled._run = run
        names = self.kernel.arg_names[len(arguments) :]
        own = tuple(constants.get(name) for name in names)
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        prefix = (*grid, 1, 1)[:3], stream, compiled.function, compiled.packed_metadata
        expected = (*arguments, *own)
        same = (
            len(calls) == 1
            and len(calls[0]) == _PREFIX + len(expected)
            and (calls[0][:3], *calls[0][3:6]) == prefix
            and all(a is b for a, b in zip(calls[0][_PREFIX:], expected, strict=True))
        )
        made = _Direct(run, compiled.function, compiled.packed_metadata, own)
        self._direct[key] = made if same else None


def _width(numbers: tuple[int, ...]) -> object:
    """Which numbers need 64 bits; usually none."""
    if not numbers or (max(numbers) in _INT32 and min(numbers) in _INT32):
        return None
    return tuple(number in _INT32 for number in numbers)


def _tails(addresses: list[int | None]) -> object:
    """Which addresses are not aligned; usually none."""
    bits = 0
    for address in addresses:
        if address is not None:
            bits |= address
    if bits % _ALIGNMENT == 0:
        return None
    return tuple(address is not None and address % _ALIGNMENT == 0 for address in addresses)


def _is_observed() -> bool:
    """Whether a profiler has asked Triton to report launches."""
    for hook in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        if hook is not None and getattr(hook, "calls", True):  # a chain of hooks may be empty
            return True
    return False


def direct(kernel: Any) -> Any:
    """Make a kernel a `DirectKernel`; one that Triton interprets stays as it is."""
    return DirectKernel(kernel) if isinstance(kernel, JITFunction) else kernel
