"""A server that speaks S3, on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[ThreadedMotoServer]:
    """An S3 server with an empty bucket; this process and those it starts use it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        maker = S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True)
        maker.create_dir(BUCKET)
        yield server
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
