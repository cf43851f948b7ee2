# SPDX-License-Identifier: Apache-2.0
"""The frame of capture files (docs/capture-format.md), read and written without collwire: header, blocks, checksums."""

import struct
import subprocess

FILE_HEADER_BYTES, BLOCK_HEADER_BYTES = 32, 48
_table = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _table.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def schema_of(path):
    with open(path, "rb") as file:
        return struct.unpack_from("<HH", file.read(FILE_HEADER_BYTES), 8)


def with_minor(data, minor):
    """The same file, as of another minor version of the schema."""
    header = bytearray(data[:FILE_HEADER_BYTES])
    struct.pack_into("<H", header, 10, minor)
    struct.pack_into("<I", header, 28, crc32c(header[:28]))
    return bytes(header) + data[FILE_HEADER_BYTES:]


def _zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, capture_output=True, check=True).stdout


def with_records_changed(data, change):
    """The same file with change(records) in each block; the number of its bytes must not change."""
    out, place = data[:FILE_HEADER_BYTES], FILE_HEADER_BYTES
    while place < len(data):
        header = bytearray(data[place:place + BLOCK_HEADER_BYTES])
        size, raw_bytes = struct.unpack_from("<II", header, 8)
        records = _zstd(data[place + BLOCK_HEADER_BYTES:place + BLOCK_HEADER_BYTES + size], "-d")
        changed = change(records)
        assert len(records) == len(changed) == raw_bytes
        payload = _zstd(changed, "-3", "--no-check")
        struct.pack_into("<II", header, 4, 0, len(payload))
        struct.pack_into("<I", header, 4, crc32c(bytes(header) + payload))
        out += bytes(header) + payload
        place += BLOCK_HEADER_BYTES + size
    return out
