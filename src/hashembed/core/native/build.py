"""Compiles all native kernels into one shared library for each level of x86-64.

    python -m hashembed.core.native.build

The build of a wheel runs this; it needs NumPy, Numba and a C compiler, which only links. Numba
reads the processor to compile for from its environment, so each level is compiled by processes of
its own, as many at a time as there are cores.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hashembed.core.native.library import (
    CHOICE,
    FOLDER,
    JIT,
    LEVELS,
    OBSTACLE,
    STAMPS,
    library_file,
)

ROOT = Path(__file__).parents[3]  # of the package
_LONGEST = ("hashembed.text.key", "hashembed_engine", "hashembed.engine", "hashembed.text.span")
_NATIVE = re.compile(r"\bnative=(?:True|\"|[a-z])")


class NoLinkerError(RuntimeError):
    """No C compiler that could link the kernels."""


def build() -> None:
    """Write the libraries of all levels, and the checksums of their sources."""
    compiler, stamps, start = find_linker(), _stamps(), time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for level in LEVELS:
            (Path(folder) / level).mkdir()
        with ThreadPoolExecutor(_cores()) as pool:
            list(pool.map(lambda part: _compile_part(part, folder), _parts()))
        for level in LEVELS:
            _link(compiler, Path(folder) / level, library_file(level))
    STAMPS.write_text(json.dumps(stamps, indent=0, sort_keys=True))
    OBSTACLE.unlink(missing_ok=True)
    size = sum(library_file(level).stat().st_size for level in LEVELS)
    print(
        f"hashembed: {len(kernels())} kernels for {', '.join(LEVELS)}: {size / 1e6:.1f} MB, "
        f"{time.monotonic() - start:.0f} s"
    )


def is_current() -> bool:
    """Whether the libraries were compiled from the sources as they are."""
    if not all(library_file(level).is_file() for level in LEVELS) or not STAMPS.is_file():
        return False
    return bool(json.loads(STAMPS.read_text()) == _stamps())


def remember_obstacle(obstacle: str) -> None:
    """Leave no libraries, and say why."""
    FOLDER.mkdir(exist_ok=True)
    for level in LEVELS:
        library_file(level).unlink(missing_ok=True)
    OBSTACLE.write_text(obstacle, encoding="utf-8")


def find_linker() -> str:
    """A C compiler that can link a library, or a `NoLinkerError`."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            order = [path, "-shared", "-x", "c", os.devnull, "-lm", "-o", f"{folder}/probe.so"]
            if subprocess.run(order, capture_output=True, check=False).returncode == 0:
                return path
    raise NoLinkerError("found no C compiler that links (CC, cc, gcc or clang)")


def kernels() -> list[Any]:
    """All native kernels, after importing their modules."""
    from hashembed.core.njit import native_kernels

    for module in _modules():
        import_module(module)
    return native_kernels


def _modules() -> Iterator[str]:
    package = ROOT / "hashembed"
    for path in sorted(package.rglob("*.py")):
        if path.parent != FOLDER.parent and _NATIVE.search(path.read_text(encoding="utf-8")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _stamps() -> dict[str, str]:
    """Kernel -> checksum of its sources; and what it was compiled with."""
    from hashembed.core.source_stamp import source_stamp

    stamps = {
        kernel.symbol: source_stamp(Path(kernel.py_func.__code__.co_filename))
        for kernel in kernels()
    }
    return {**stamps, "build": source_stamp(Path(__file__)), "Numba": version("numba")}


def _parts() -> list[str]:
    """The kernels in parts that are compiled by processes of their own: the longest first."""
    parts = {_part_of(kernel) for kernel in kernels()}
    return sorted(parts, key=lambda part: (not part.startswith(_LONGEST), part))


def _part_of(kernel: Any) -> str:
    """Variants of a function, and what takes long, are apart; a process takes a second to start."""
    function = kernel.py_func
    if "<locals>" in function.__qualname__:
        return str(kernel.symbol)
    module = str(function.__module__)
    return module if module.startswith(_LONGEST) else module.split(".")[1]


def _compile_part(part: str, folder: str) -> None:
    """Compile a part in a process of its own."""
    environment = {
        **os.environ,
        CHOICE: JIT,
        "NUMBA_CPU_NAME": next(iter(LEVELS)),
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(Path(folder) / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    order = [sys.executable, "-m", "hashembed.core.native.build", part, folder]
    done = subprocess.run(order, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"cannot compile the kernels of {part}:\n{done.stdout}{done.stderr}")


def compile_objects(part: str, folder: Path) -> None:
    """Compile the kernels of a part for all levels -> object files in the folders of the levels."""
    from llvmlite import binding as llvm

    from hashembed.core.native.entry import compile_entry, only_translating, optimise
    from hashembed.core.native.runtime import runtime_code
    from hashembed.core.native.signature import signatures

    codes = {}
    with only_translating():
        for kernel in kernels():
            if _part_of(kernel) == part:
                for i, signature in enumerate(signatures(kernel.py_func)):
                    name = f"{kernel.symbol}_{i}"
                    codes[name] = compile_entry(kernel.dispatcher, signature, name)
    if part == _parts()[0]:
        codes["runtime"] = runtime_code()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    for level in LEVELS:
        machine = target.create_target_machine(cpu=level, features="", opt=3, reloc="pic")
        for name, code in codes.items():
            entry = None if name == "runtime" else name
            found = machine.emit_object(optimise(code, machine, entry))
            (folder / level / f"{name}.o").write_bytes(found)


def _link(compiler: str, folder: Path, library: Path) -> None:
    script = folder / "names.map"
    script.write_text("{ global: hashembed_*; local: *; };")
    objects = sorted(folder.glob("*.o"))
    fresh = library.with_suffix(f".{os.getpid()}.tmp")  # a process may have the old one loaded
    options = ["-shared", "-Wl,-s", "-Wl,-Bsymbolic", "-Wl,--gc-sections", "-Wl,-z,defs"]
    script_option = f"-Wl,--version-script={script}"
    order = [compiler, *options, script_option, "-o", str(fresh), *map(str, objects), "-lm"]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"cannot link the kernels:\n{done.stderr}")
    fresh.replace(library)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        build()
    else:
        compile_objects(sys.argv[1], Path(sys.argv[2]))
