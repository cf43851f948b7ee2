#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and nonsensical captures through every verb that reads captures: each ends by itself, in time, without a finding of a sanitizer. What is changed:
bytes of the file; its length; with the checksums made right again, fields of records, whole records, their order.

mutated_captures_test.py [--collwire FILE] [--stream FILE] [--first N] [--number N]    40 of them; 10,000 with COLLWIRE_FULL=1"""

import argparse
import glob
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

import capture_file

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FEW, ALL = 40, 10_000
MOST_S = 60
EXTREMES = (0, 1, 2, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 40, 1 << 20)
HEADER_BYTES = 16
STATUSES = range(0, 6)


def split(records):
    found, at = [], 0
    while at < len(records):
        length = struct.unpack_from("<I", records, at)[0]
        found.append(bytearray(records[at:at + length]))
        at += length
    return found


def change_records(choose, records):
    """The number of bytes stays, and each record's length."""
    found = split(records)
    for _ in range(choose.choice((1, 1, 3, 20))):
        one = choose.choice(found)
        kind = choose.randrange(5)
        if kind == 0 and len(one) > HEADER_BYTES: # a field
            width = choose.choice((1, 2, 4, 8))
            at = choose.randrange(HEADER_BYTES, len(one) - width + 1) // width * width
            one[at:at + width] = (choose.choice(EXTREMES) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 1: # its kind, or its time
            at, width = choose.choice(((4, 2), (8, 8)))
            one[at:at + width] = (choose.choice((*EXTREMES, choose.randrange(128))) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 2: # another record of its length
            other = choose.choice([each for each in found if len(each) == len(one)])
            one[:] = other
        elif kind == 3 and len(one) > HEADER_BYTES: # noise
            for _ in range(8):
                one[choose.randrange(HEADER_BYTES, len(one))] = choose.randrange(256)
        else:
            i, k = choose.randrange(len(found)), choose.randrange(len(found))
            found[i], found[k] = found[k], found[i]
    return b"".join(found)


def mutate(choose, data):
    kind = choose.randrange(6)
    if kind == 0:
        return data[:choose.randrange(len(data))]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(choose.choice((1, 4, 64))):
            changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
        return bytes(changed)
    wanted = choose.randrange(4)
    blocks = iter(range(1 << 30))
    return capture_file.with_records_changed(
        data, lambda records: change_records(choose, records) if next(blocks) % 4 == wanted or choose.random() < 0.5 else records)


def check(arguments, number):
    choose = random.Random(number)
    captures = sorted(glob.glob(os.path.join(choose.choice(sorted(glob.glob(os.path.join(HERE, "*-*")))), "*.cwc")))
    damaged = choose.sample(captures, choose.randrange(1, len(captures) + 1))
    with tempfile.TemporaryDirectory() as directory:
        for path in captures:
            with open(path, "rb") as file:
                data = file.read()
            with open(os.path.join(directory, os.path.basename(path)), "wb") as file:
                file.write(mutate(choose, data) if path in damaged else data)
        words = choose.choice(([arguments.collwire, "report", directory], [arguments.collwire, "report", directory, "--json", "-", "--detail"],
                               [arguments.collwire, "report", directory, "--sqlite", os.path.join(directory, "report.sqlite"), "--detail"],
                               [arguments.collwire, "diagnose", directory], [arguments.collwire, "dump", directory],
                               [arguments.stream, "--rows", directory]))
        begin = time.monotonic()
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=MOST_S, check=False)
        took_s = time.monotonic() - begin
        text = done.stderr.decode(errors="replace")
        assert done.returncode in STATUSES and "Sanitizer" not in text and "runtime error" not in text, \
            f"--first {number} --number 1: {words}: status {done.returncode}\n{text[-3000:]}"
        return took_s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", default=os.path.join(ROOT, "build", "dev", "collwire"))
    parser.add_argument("--stream", default=os.path.join(ROOT, "build", "dev", "tools", "bench", "collwire-bench-stream"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int, default=ALL if os.environ.get("COLLWIRE_FULL") == "1" else FEW)
    arguments = parser.parse_args()
    times = [check(arguments, number) for number in range(arguments.first, arguments.first + arguments.number)]
    print(f"{len(times)} captures, the slowest took {max(times):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
