# SPDX-License-Identifier: Apache-2.0
"""When the code of RDMA driver libraries in a process has breakpoints: the memory of the process against the library's file, again and again."""

import functools
import json
import re
import threading
import time

DRIVER = re.compile(r"/lib\w+-rdmav\d+\.so")
EVERY_S = 0.1
BREAKPOINT = 0xcc


@functools.lru_cache(maxsize=None)
def in_file(path, offset, length):
    with open(path, "rb") as library:
        library.seek(offset)
        return library.read(length)


def code_of(pid):
    """(address, bytes in the file) of each mapping with a driver's code. libibverbs loads one driver after the other."""
    mappings = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            words = line.split()
            if len(words) < 6 or "x" not in words[1] or not DRIVER.search(words[5]):
                continue
            begin, end = (int(address, 16) for address in words[0].split("-"))
            mappings.append((begin, in_file(words[5], int(words[2], 16), end - begin)))
    return mappings


def breakpoints_in(pid, mappings):
    found = 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for address, expected in mappings:
            memory.seek(address)
            there = b""
            while len(there) < len(expected):
                part = memory.read(len(expected) - len(there))
                if not part:
                    raise OSError(f"{pid}: {len(there)} of {len(expected)} bytes at {address:#x}")
                there += part
            if there != expected:
                found += sum(1 for now, was in zip(there, expected) if now != was and now == BREAKPOINT)
    return found


class TrapWatch(threading.Thread):
    """Writes a line for each look at a process: pid, begin_ns, end_ns (CLOCK_MONOTONIC), traps."""

    def __init__(self, pids, path):
        super().__init__(daemon=True)
        self._pids, self._path, self._ended = pids, path, threading.Event()
        self.start()

    def run(self):
        with open(self._path, "w", encoding="ascii") as log:
            while not self._ended.wait(EVERY_S):
                for pid in self._pids:
                    try:
                        mappings = code_of(pid)
                        begin_ns = time.monotonic_ns()
                        traps = breakpoints_in(pid, mappings)
                    except OSError: # the process exits
                        continue
                    if mappings:
                        json.dump({"pid": pid, "begin_ns": begin_ns, "end_ns": time.monotonic_ns(), "traps": traps}, log)
                        log.write("\n")

    def stop(self):
        self._ended.set()
        self.join()
