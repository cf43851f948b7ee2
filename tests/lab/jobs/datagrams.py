# SPDX-License-Identifier: Apache-2.0
"""Numbered datagrams: every 40 ms node 0 sends one to each NIC of each other node, which sends it back."""

import os
import select
import socket
import threading
import time
from typing import Dict, List

from lab_job import NODE, NODES

_PORT = 5000
_INTERVAL_S = 0.04
_NICS = ("", "_1")


class Datagrams:
    """Runs from its construction to stop()."""

    def __init__(self) -> None:
        self._counts = {os.environ[f"PEER_{node}{nic}"]: [0, 0] for node in range(1, NODES) for nic in _NICS if f"PEER_{node}{nic}" in os.environ}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", _PORT))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask if NODE == 0 else self._answer)
        self._thread.start()

    def stop(self) -> Dict[str, List[int]]:
        """{address: [sent, came back]} on node 0."""
        self._over.set()
        self._thread.join()
        return self._counts

    def _ask(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            for address, count in self._counts.items():
                self._socket.sendto(b"number %d" % count[0], (address, _PORT))
                count[0] += 1
            due += _INTERVAL_S
            while select.select([self._socket], [], [], max(0, due - time.monotonic()))[0]:
                self._counts[self._socket.recvfrom(100)[1][0]][1] += 1

    def _answer(self) -> None:
        while not self._over.is_set():
            if select.select([self._socket], [], [], _INTERVAL_S)[0]:
                data, source = self._socket.recvfrom(100)
                self._socket.sendto(data, source)
