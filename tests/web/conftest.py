"""One JavaScript process for all tests of a worker."""

import pytest
from tests.cases.node import Server


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    running.close()
