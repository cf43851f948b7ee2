# SPDX-License-Identifier: Apache-2.0
"""A minimal initramfs that mounts the host's root read-only over 9p and continues there."""

import fcntl
import glob
import gzip
import hashlib
import lzma
import os
import stat
import struct
import subprocess

from .report import LabError, NotPossible

_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_net")
_PT_INTERP = 3


def busybox():
    """The path of a static busybox. Raises NotPossible."""
    for path in ("/usr/bin/busybox", "/bin/busybox"):
        if os.path.exists(path) and _is_static(path):
            return path
    raise NotPossible("no statically linked busybox. Fix: apt-get install busybox-static")


def _is_static(path):
    with open(path, "rb") as elf:
        header = elf.read(64)
        if header[:5] != b"\x7fELF\x02":
            return False
        offset, = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        elf.seek(offset)
        table = elf.read(size * count)
    return all(struct.unpack_from("<I", table, i * size)[0] != _PT_INTERP for i in range(count))


def _module_files(kernel):
    """Paths of the needed modules in load order, relative to the directory of modules.dep."""
    by_name, depends = {}, {}
    with open(os.path.join(kernel.modules, kernel.release, "modules.dep"), encoding="utf-8") as source:
        for line in source:
            path, _, rest = line.partition(":")
            by_name[os.path.basename(path).split(".")[0].replace("-", "_")] = path
            depends[path] = rest.split()
    order = []
    for name in _MODULES:
        path = by_name.get(name)
        if path is None:
            continue  # built in
        # modules.dep lists all dependencies, each after its users.
        for needed in reversed(depends[path]):
            if needed not in order:
                order.append(needed)
        if path not in order:
            order.append(path)
    return order


def _module_bytes(path):
    with open(path, "rb") as source:
        data = source.read()
    if path.endswith(".ko"):
        return data
    if path.endswith(".ko.xz"):
        return lzma.decompress(data)
    if path.endswith(".ko.zst"):
        done = subprocess.run(["zstd", "--decompress", "--stdout", path], capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout
        raise LabError(f"{path}: {done.stderr.decode(errors='replace').strip()}. Fix: apt-get install zstd")
    raise LabError(f"{path}: unknown compression of a kernel module. Fix: pin another kernel in tools/lab_lib/kernels.json")


class _Cpio:
    """A writer of the "newc" format (kernel documentation: driver-api/early-userspace/buffer-format)."""

    def __init__(self):
        self._parts = []
        self._inode = 1

    def add(self, name, mode, data=b"", device=(0, 0)):
        name_bytes = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(name_bytes), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name_bytes
        self._parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]
        self._inode += 1

    def bytes(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def build(kernel):
    """Builds (or finds) the initramfs of a kernel and returns its path."""
    busybox_path = busybox()
    with open(os.path.join(os.path.dirname(__file__), "initramfs-init.sh"), "rb") as source:
        init = source.read()
    with open(busybox_path, "rb") as source:
        busybox_bytes = source.read()
    with open(__file__, "rb") as source:
        key = hashlib.sha256(init + busybox_bytes + source.read()).hexdigest()[:16]
    path = os.path.join(kernel.directory, f"initramfs-{key}.gz")
    with open(os.path.join(kernel.directory, "initramfs.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            for other in glob.glob(os.path.join(kernel.directory, "initramfs-*.partial")):
                os.unlink(other)  # left by an earlier run that died
            with open(path + ".partial", "wb") as out:
                out.write(gzip.compress(_archive(kernel, busybox_bytes, init), 1))
            os.rename(path + ".partial", path)
    return path


def _archive(kernel, busybox_bytes, init):
    archive = _Cpio()
    for directory in ("bin", "dev", "proc", "sys", "modules"):
        archive.add(directory, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, busybox_bytes)
    names = []
    for i, module in enumerate(_module_files(kernel)):
        names.append(f"{i:02d}-{os.path.basename(module).split('.')[0]}.ko")
        archive.add(f"modules/{names[-1]}", stat.S_IFREG | 0o644,
                    _module_bytes(os.path.join(kernel.modules, kernel.release, module)))
    archive.add("modules.list", stat.S_IFREG | 0o644, "".join(name + "\n" for name in names).encode())
    archive.add("init", stat.S_IFREG | 0o755, init)
    return archive.bytes()
