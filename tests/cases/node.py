"""Runs JavaScript: Node is part of what the tests need."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[1] / "web" / "serve.mjs"


def node() -> str:
    """The program; without it a test fails, and says why."""
    found = shutil.which("node")
    if found is None:
        pytest.fail("found no `node`: the tests of the JavaScript module need Node.js 18 or later")
    return found


class Server:
    """A process that answers one job a line with the JavaScript module; see `serve.mjs`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [node(), SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **job: Any) -> Any:
        """What `serve.mjs` answers. Lone surrogates pass, as escapes."""
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JavaScript process ended; its standard error has the reason"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0
