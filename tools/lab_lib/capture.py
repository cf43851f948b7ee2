# SPDX-License-Identifier: Apache-2.0
"""Packet captures of the fabric's links with tcpdump, and the check that they hold every frame."""

import os
import re
import select
import signal
import struct
import subprocess
import time

from .report import LabError

SNAP_BYTES = 160
RING_KIB = 64 * 1024
_STATISTICS = re.compile(r"(\d+) packets? captured.*?(\d+) packets? received by filter.*?(\d+) packets? dropped by kernel", re.DOTALL)


class Capture:
    """One tcpdump on one link, for the whole run."""

    def __init__(self, link, directory, preexec):
        self.link = link
        self.path = os.path.join(directory, link.capture)
        command = ["tcpdump", "-i", link.device, "-w", self.path, "-s", str(SNAP_BYTES), "-B", str(RING_KIB),
                   "-n", "--immediate-mode", "-Z", "root"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                         preexec_fn=preexec)
        self._said = b""
        self._await(lambda said: b"listening on" in said, 20)

    def _await(self, wanted, seconds):
        stream = self._process.stderr.fileno()
        end = time.monotonic() + seconds
        while not wanted(self._said):
            ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
            data = os.read(stream, 65536) if ready else b""
            if not data:
                raise LabError(f"the packet capture of {self.link.name} failed: {self._said.decode(errors='replace').strip() or 'no answer'}. "
                               "Fix: see whether tcpdump works here as root")
            self._said += data

    def _statistics(self, sig):
        self._said = b""
        self._process.send_signal(sig)
        self._await(lambda said: _STATISTICS.search(said.decode(errors="replace")), 20)
        return tuple(int(n) for n in _STATISTICS.search(self._said.decode(errors="replace")).groups())

    def written(self):
        """Frames that tcpdump has written so far."""
        return self._statistics(signal.SIGUSR1)[0]

    def stop(self):
        """Stops the capture. Returns tcpdump's counts: {captured, received, dropped}."""
        captured, received, dropped = self._statistics(signal.SIGINT)
        self._process.wait()
        return {"captured": captured, "received": received, "dropped": dropped}


def sums(path):
    """{source MAC: [frames, bytes]} of a packet file, by original frame length."""
    with open(path, "rb") as source:
        data = source.read()
    if len(data) < 24 or data[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        raise LabError(f"{path} is not a packet file of this machine")
    found = {}
    record = struct.Struct("<II")
    at, end = 24, len(data)
    while at < end:
        kept, length = record.unpack_from(data, at + 8)
        entry = found.setdefault(data[at + 22:at + 28], [0, 0])
        entry[0] += 1
        entry[1] += length
        at += 16 + kept
    return {source.hex(":"): entry for source, entry in found.items()}


def compare(fabric, rows, directory):
    """One line per link and direction where counter and capture differ. Empty: they agree."""
    wrong = []
    for link, row in zip(fabric.links, rows):
        seen = {"a": [0, 0], "b": [0, 0], None: [0, 0]}
        for source, (frames, length) in sums(os.path.join(directory, link.capture)).items():
            side = seen[fabric.source_side(link, source)]
            side[0] += frames
            side[1] += length
        if seen[None][0]:
            wrong.append(f"{link.name}: {seen[None][0]} frames from an address that belongs to no node")
        for side, name in (("a", "a_to_b"), ("b", "b_to_a")):
            counted = [row[f"{name}_pkts"], row[f"{name}_bytes"]]
            if seen[side] != counted:
                wrong.append(f"{link.name} {name}: counter {counted[0]} frames {counted[1]} B, capture {seen[side][0]} frames {seen[side][1]} B")
    return wrong
