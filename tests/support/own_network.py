# SPDX-License-Identifier: Apache-2.0
"""A network namespace for this process and those that it starts, with addresses that NCCL takes for network devices of their own."""

import contextlib
import ctypes
import os
import subprocess

CLONE_NEWNET = 0x40000000


def _call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def of_devices(count):
    """For the time of the block, which needs root and has one thread. NCCL_SOCKET_IFNAME=lo selects all `count` devices."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call(libc.unshare, CLONE_NEWNET)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for number in range(1, count):
                subprocess.run(["ip", "addr", "add", f"127.0.0.{number + 1}/8", "dev", "lo", "label", f"lo:{number}"], check=True)
            yield
        finally:
            _call(libc.setns, before, CLONE_NEWNET)
    finally:
        os.close(before)
