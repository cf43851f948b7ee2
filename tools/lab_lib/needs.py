# SPDX-License-Identifier: Apache-2.0
"""Checks what the lab needs from the machine. A missing part is one line with its fix."""

import os
import platform
import shutil
import stat

from . import initramfs
from .report import NotPossible

_TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86", "ip": "iproute2", "bridge": "iproute2", "rdma": "iproute2", "tc": "iproute2",
    "depmod": "kmod", "modprobe": "kmod", "dpkg-deb": "dpkg", "apt-get": "apt",
}


def check(pcap, systemd=False):
    """Raises NotPossible for the first missing part. Creates the device node /dev/net/tun if only that is missing."""
    if os.geteuid() != 0:
        raise NotPossible("the lab needs root (network namespace, taps). Fix: run it with sudo")
    if platform.machine() != "x86_64":
        raise NotPossible(f"the lab boots amd64 kernels, but this machine is {platform.machine()}. Fix: run it on x86-64")
    # The PATH of sudo and cron often lacks these directories.
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    tools = dict(_TOOLS, tcpdump="tcpdump") if pcap else _TOOLS
    missing = sorted({package for tool, package in tools.items() if not shutil.which(tool)})
    if missing:
        raise NotPossible(f"not installed: {', '.join(missing)}. Fix: apt-get install {' '.join(missing)} (or tools/install-deps)")
    if systemd and not os.path.exists("/lib/systemd/systemd"):
        raise NotPossible("no /lib/systemd/systemd. Fix: apt-get install systemd udev")
    initramfs.busybox()  # raises NotPossible, too
    if not os.path.exists("/proc/self/stat"):
        raise NotPossible("/proc is not mounted. Fix: mount -t proc proc /proc")
    _check_tun()


def _check_tun():
    path = "/dev/net/tun"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        raise NotPossible(f"{path}: {error.strerror}. Fix: modprobe tun (in a container: allow the device)") from error
