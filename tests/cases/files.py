"""Small data files."""

import pyarrow as pa


def pairs(data):
    return list(zip(data.labels.to_pylist(), data.texts.to_pylist(), strict=True))


def write(path, content, encoding="utf-8"):
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)
