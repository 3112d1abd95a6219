"""`njit` for all kernels of the package.

A kernel runs as machine code from one of two sources:

- the library that was compiled when the package was built (`core/native`), for kernels that are
  marked `native`, if the library has them;
- Numba, which compiles a kernel when it is first called and keeps it on disk
  (`core/kernel_cache.py`). Numba is imported only then.

Both have the same results, bit for bit.
"""

import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, update_wrapper
from importlib import import_module
from typing import Any

from hashembed.core.native.call import NativeKernel
from hashembed.core.native.library import JIT, find_library, runtime

LONG = 1.0  # seconds of compiling after which the user is told

native_kernels: "list[Kernel]" = []  # all of the modules imported so far


class NoNumbaError(ImportError):
    """A kernel must be compiled, and Numba is not installed."""


class Kernel:
    """A function that runs as machine code. Kernels may call each other."""

    def __init__(
        self, function: Callable[..., Any], name: str | None, keep: bool, options: dict[str, Any]
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.symbol = _symbol(function.__module__, name) if name else None
        self._keep, self._options = keep, options
        self._compiled: set[Hashable] = set()  # types of arguments

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        native = self.native
        if native is not None and (packed := native.pack(arguments)) is not None:
            return native.run(packed)
        if not self._compiled:
            self.compile_for(arguments)
        return self.dispatcher(*arguments)

    @cached_property
    def native(self) -> NativeKernel | None:
        """The kernel of the library, if it is there."""
        if self.symbol is None or (library := find_library(self.symbol, self.py_func)) is None:
            return None
        return NativeKernel.of(self.py_func, self.symbol, library)

    @cached_property
    def dispatcher(self) -> Any:
        """The kernel as Numba knows it."""
        try:
            import numba
        except ImportError as error:
            raise NoNumbaError(
                f"this installation has no compiled kernel {self.py_func.__name__} for arguments "
                "of these types. (Kernels of the layers are compiled for float32; other precisions "
                "need Numba.) Numba compiles kernels, but is missing: "
                'pip install "hashembed[jit]"'
            ) from error
        dispatcher = numba.njit(**self._options)(self.py_func)
        if self._keep and hasattr(dispatcher, "enable_caching"):  # not with NUMBA_DISABLE_JIT
            from hashembed.core.kernel_cache import KernelCache, tell_not_kept

            try:
                dispatcher._cache = KernelCache(self.py_func)  # what `enable_caching` does
            except Exception as error:  # code without a file, or another version of Numba
                tell_not_kept(error)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """Numba asks for this when another kernel calls this one."""
        return self.dispatcher._numba_type_

    @property
    def targetoptions(self) -> Any:
        """Numba looks here for `inline`."""
        return self._options

    def must_compile(self, arguments: Sequence[Any]) -> bool:
        """Whether Numba has not been asked yet to compile it for arguments of these types."""
        return tuple(_types(arguments)) not in self._compiled

    def compile_for(self, arguments: Sequence[Any]) -> None:
        """Let Numba compile it for arguments of these types."""
        types = tuple(_types(arguments))
        if hasattr(self.dispatcher, "compile"):  # not with NUMBA_DISABLE_JIT
            from numba import typeof

            with _telling_if_long():
                self.dispatcher.compile(tuple(typeof(value) for value in arguments))
        self._compiled.add(types)


def _types(arguments: Sequence[Any]) -> Iterator[Any]:
    """The types of arguments, and of what groups hold."""
    for value in arguments:
        if isinstance(value, tuple):
            yield from _types(value)
        else:
            yield getattr(value, "dtype", None) or type(value)


class Intrinsic:
    """An intrinsic of Numba, whose code is in a module that is imported when Numba asks for it."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *arguments: Any) -> Any:
        """Only kernels can call it."""
        raise TypeError(f"{self.name} works only in a kernel")

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        real = getattr(import_module(self.module), self.name)
        cpu_target.typing_context.refresh()  # they may have been set up before it was imported
        cpu_target.target_context.refresh()
        return cpu_target.typing_context.resolve_value_type(real)


def njit(
    function: Callable[..., Any] | None = None,
    *,
    native: bool | str = False,
    cache: bool = False,
    **options: Any,
) -> Any:
    """Makes a function a kernel.

    native: whether it belongs to the library of compiled kernels; or its name there, if several
        functions are made from one source. Parameters and result need annotations
        (`core/native/signature.py`).
    cache: whether Numba keeps it on disk. Native kernels are always kept.
    options: those of Numba's `njit`.
    """
    if function is None:
        return lambda function: njit(function, native=native, cache=cache, **options)
    name = function.__name__ if native is True else native or None
    kernel = Kernel(function, name, cache or bool(native), options)
    if native:
        native_kernels.append(kernel)
    return kernel


def _symbol(module: str, name: str) -> str:
    """The name of a kernel in the library."""
    return f"{module}.{name}".replace(".", "_")


@contextmanager
def _telling_if_long() -> Iterator[None]:
    """Around a compilation, which may also find the kernel on disk."""
    timer = threading.Timer(LONG, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _say() -> None:
    import logging  # 5 ms, and hardly any process compiles

    from hashembed.core.kernel_cache import kernels_are_kept

    kept = "; they are kept on disk for the next time" if kernels_are_kept() else ""
    why = f" (reason: {runtime().why})" if runtime().level == JIT else ""
    message = f"compiling CPU kernels{kept}{why}"
    logging.getLogger("hashembed").info(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"hashembed: {message}", file=sys.stderr)
