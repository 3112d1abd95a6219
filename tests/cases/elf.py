"""Reads from a shared library what it needs from others (as `nm -D --undefined-only` shows)."""

import struct
from pathlib import Path

DYNAMIC_SYMBOLS = 11  # a type of section


def undefined_symbols(path: Path) -> set[str]:
    """The functions and variables that the loader must find elsewhere."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"  # 64 bits, little endian
    (begin,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, begin + i * size) for i in range(count)]
    (symbols,) = (section for section in sections if section[1] == DYNAMIC_SYMBOLS)
    names = sections[symbols[6]][4]
    found = set()
    for place in range(symbols[4], symbols[4] + symbols[5], symbols[9]):
        name, _, _, section = struct.unpack_from("<IBBH", data, place)
        if name and section == 0:
            found.add(data[names + name : data.index(0, names + name)].decode())
    return found
