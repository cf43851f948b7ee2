# SPDX-License-Identifier: Apache-2.0
"""A kernel as QEMU boots it: unpacked, because an emulated CPU takes longer to unpack a kernel than to boot it. It lies at a fixed address then."""

import fcntl
import lzma
import os
import struct
import subprocess

_XZ, _ZSTD = b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
# Linux boot protocol (kernel documentation: arch/x86/boot): sectors of the setup code, and where the packed kernel is after them.
_MAGIC_AT, _MAGIC = 0x202, b"HdrS"
_SETUP_SECTORS_AT, _PAYLOAD_AT = 0x1F1, 0x248
_SECTOR_BYTES = 512
# The note of an ELF file that says where QEMU starts it: XEN_ELFNOTE_PHYS32_ENTRY.
_ENTRY_NOTE = struct.pack("<III", 4, 8, 18) + b"Xen\0"


def unpacked(image):
    """The ELF file in the bytes of a bzImage. None: not one that QEMU can boot."""
    if image[_MAGIC_AT:_MAGIC_AT + len(_MAGIC)] != _MAGIC:
        return None
    offset, length = struct.unpack_from("<II", image, _PAYLOAD_AT)
    begin = ((image[_SETUP_SECTORS_AT] or 4) + 1) * _SECTOR_BYTES + offset
    packed = image[begin:begin + length]
    try:
        if packed.startswith(_XZ):
            unpacker = lzma.LZMADecompressor()  # the size of the kernel follows the stream
            elf = unpacker.decompress(packed)
            if not unpacker.eof:
                return None
        elif packed.startswith(_ZSTD):
            elf = subprocess.run(["zstd", "--decompress", "--stdout"], input=packed, capture_output=True, check=False).stdout
        else:
            return None
    except (OSError, lzma.LZMAError):
        return None
    return elf if elf.startswith(b"\x7fELF") and _ENTRY_NOTE in elf else None


def build(kernel):
    """Unpacks (or finds) the image of a kernel and returns its path; with COLLWIRE_FULL=1, and where that is not possible, that of the package, which
    chooses its address at random."""
    if os.environ.get("COLLWIRE_FULL") == "1":
        return kernel.vmlinuz
    path = os.path.join(kernel.directory, "vmlinux")
    with open(os.path.join(kernel.directory, "vmlinux.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            with open(kernel.vmlinuz, "rb") as source:
                elf = unpacked(source.read())
            if elf is None:
                return kernel.vmlinuz
            with open(path + ".partial", "wb") as out:
                out.write(elf)
            os.rename(path + ".partial", path)
    return path
