"""Builds the compiled kernels into wheels and into a clone (`pip install -e .`).

Without a C linker, or on another platform than Linux on x86-64, the package is installed without
them: it then depends on Numba, which compiles kernels when they are first used.
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = Path(__file__).parent / "src"
NUMBA = "numba>=0.61"
DEPENDENCIES = ["click>=8.2", "numpy>=2.0", "pyarrow>=17", "rich>=13", "safetensors>=0.4.3"]

sys.path.insert(0, str(SOURCE))


def _obstacle() -> str | None:
    """What keeps kernels from being compiled here."""
    from hashembed.core.native import build, library

    if os.environ.get(library.CHOICE) == library.JIT:
        return f"{library.CHOICE}={library.JIT} was set during the installation"
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return f"there are no compiled kernels for {sys.platform} on this processor"
    try:
        build.find_linker()
    except build.NoLinkerError as error:
        return f"the installation {error}"
    return None


class CustomMetadataHook(MetadataHookInterface):
    """The package needs Numba only without compiled kernels."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies."""
        metadata["dependencies"] = sorted([*DEPENDENCIES, *([NUMBA] if _obstacle() else [])])


class CustomBuildHook(BuildHookInterface[Any]):
    """Compiles the kernels before the files of a wheel are collected."""

    def dependencies(self) -> list[str]:
        """What the build needs from PyPI."""
        return [] if _obstacle() else [NUMBA, "numpy>=2.0"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what was compiled to the wheel."""
        from hashembed.core.native import build, library

        if obstacle := _obstacle():
            build.remember_obstacle(obstacle)
            if NUMBA not in self.metadata.core.dependencies:
                # A source distribution: hatchling takes the dependencies of where it was made.
                build_data["dependencies"].append(NUMBA)
            self.app.display_warning(f"hashembed: installing without compiled kernels: {obstacle}")
        else:
            if not build.is_current():
                build.build()
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-linux_x86_64"
        build_data["artifacts"].append(f"{library.FOLDER.relative_to(SOURCE.parent)}/*")
