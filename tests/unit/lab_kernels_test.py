#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which kernel the lab takes when the archive has another one, or cannot be reached, and what QEMU boots of it. No network: the archive is a stand-in."""

import contextlib
import hashlib
import io
import json
import lzma
import os
import struct
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools"))

from lab_lib import boot_image, kernels  # noqa: E402  (the path has to be set first)
from lab_lib.report import LabError  # noqa: E402

PINNED = {"suites": ["stable"], "image": "linux-image-5.1.0-2-amd64", "version": "5.1.2-1", "pattern": r"linux-image-5\.1\.0-[0-9]+-amd64"}
UNPINNED = {"suites": ["sid"], "image": None, "version": None, "pattern": r"linux-image-[0-9.]+-amd64"}


class Archive:
    """Stands in for debian_apt.PrivateApt."""

    packages = {}  # name: version
    reachable = True
    asked = 0

    def __init__(self, _directory, _suites, archive="debian"):
        pass

    def update(self):
        Archive.asked += 1
        if not Archive.reachable:
            raise LabError("no network. Fix: plug it in")

    def names(self, prefix):
        return [name for name in Archive.packages if name.startswith(prefix)]

    def versions(self, name):
        return [(Archive.packages[name], "")] if name in Archive.packages else []

    def download(self, packages, _directory):
        return [f"{name}_{version}" for name, version in packages]


def unpack(debs, packages, staging):
    make(staging, *packages[0])
    assert len(debs) == 1


def make(directory, package, version):
    """A directory that looks like an unpacked kernel package."""
    os.makedirs(os.path.join(directory, "modules", "release"))
    for name in ("vmlinuz", "modules/release/modules.dep"):
        with open(os.path.join(directory, name), "w", encoding="ascii"):
            pass
    with open(os.path.join(directory, "kernel.json"), "w", encoding="ascii") as out:
        json.dump({"package": package, "version": version, "release": "release", "vmlinuz": "vmlinuz", "modules": "modules"}, out)


class Kernels(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cache = directory.name
        self.entry = PINNED
        Archive.packages, Archive.reachable, Archive.asked = {}, True, 0
        for patch in (mock.patch.object(kernels, "cache_directory", lambda: self.cache),
                      mock.patch.object(kernels, "catalogue", lambda: {"5.1": self.entry}),
                      mock.patch.object(kernels.debian_apt, "PrivateApt", Archive),
                      mock.patch.object(kernels, "_unpack", unpack)):
            patch.start()
            self.addCleanup(patch.stop)

    def get(self):
        """(package, version, what was said)."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            kernel = kernels.get("5.1")
        return kernel.package, kernel.version, said.getvalue()

    def age(self):
        old = time.time() - kernels.RECHECK_S - 60
        os.utime(os.path.join(self.cache, "resolved-5.1.json"), (old, old))

    def test_the_pinned_one_is_fetched_once(self):
        Archive.packages = {PINNED["image"]: PINNED["version"]}
        for _ in range(2):
            self.assertEqual(self.get()[:2], (PINNED["image"], PINNED["version"]))
        self.assertEqual(Archive.asked, 1)

    def test_gone_from_the_archive_the_newest_of_its_series_stands_in_and_is_not_asked_for_each_time(self):
        Archive.packages = {"linux-image-5.1.0-3-amd64": "5.1.3-1", "linux-image-5.1.0-9-amd64": "5.1.9-1", "linux-image-6.1.0-1-amd64": "6.1.1-1"}
        for _ in range(3):
            package, version, said = self.get()
            self.assertEqual((package, version), ("linux-image-5.1.0-9-amd64", "5.1.9-1"))
            self.assertIn("is not in the archive any more, using", said)
            self.assertIn("5.1.9-1", said)
        self.assertEqual(Archive.asked, 1)
        self.age()
        self.get()
        self.assertEqual(Archive.asked, 2)

    def test_another_pin_is_asked_for_at_once(self):
        Archive.packages = {"linux-image-5.1.0-3-amd64": "5.1.3-1"}
        self.get()
        self.entry = dict(PINNED, image="linux-image-5.1.0-4-amd64", version="5.1.4-1")
        Archive.packages = {"linux-image-5.1.0-4-amd64": "5.1.4-1"}
        self.assertEqual(self.get()[:2], ("linux-image-5.1.0-4-amd64", "5.1.4-1"))

    def test_without_the_archive_a_cached_one_of_the_series_stands_in(self):
        Archive.reachable = False
        with self.assertRaisesRegex(LabError, "no network"):
            self.get()
        make(os.path.join(self.cache, "kernels", "5.1_other_5.1.1-1"), "other", "5.1.1-1")
        os.makedirs(os.path.join(self.cache, "kernels", "5.1_broken_1"))
        package, _, said = self.get()
        self.assertEqual(package, "other")
        self.assertIn("no network", said)
        self.assertIn("using the cached other 5.1.1-1", said)

    def test_newest_is_looked_up_again_after_a_week(self):
        self.entry = UNPINNED
        Archive.packages = {"linux-image-7.1-amd64": "7.1-1"}
        self.get()
        Archive.packages = {"linux-image-7.2-amd64": "7.2-1"}
        self.assertEqual(self.get()[1:], ("7.1-1", ""))
        self.age()
        self.assertEqual(self.get()[1], "7.2-1")
        Archive.reachable = False
        self.age()
        self.assertIn("using the cached linux-image-7.2-amd64 7.2-1", self.get()[2])

    def test_a_package_of_ubuntu_with_another_hash_is_refused(self):
        path = os.path.join(self.cache, "linux-image-5.1_5.1-1_amd64.deb")
        with open(path, "w", encoding="ascii") as file:
            file.write("other bytes")
        hashes = {"linux-image-5.1": "7b5e0ab9b1a25c1e7cf5a4bd98c2b9b2f0a1a1b0e6b1a2c3d4e5f60718293a4b"}
        with self.assertRaisesRegex(LabError, "linux-image-5.1_5.1-1_amd64.deb: SHA-256"):
            kernels.check_hashes([path], {"sha256": hashes})
        hashes["linux-image-5.1"] = hashlib.sha256(b"other bytes").hexdigest()
        kernels.check_hashes([path], {"sha256": hashes})
        with self.assertRaises(LabError):
            kernels.check_hashes([path], {"sha256": {}})

    def test_a_packed_image_is_unpacked_once_and_booted(self):
        kernel = self.with_image(bz_image(lzma.compress(ELF)))
        with mock.patch.dict(os.environ, {"COLLWIRE_FULL": "0"}):
            for _ in range(2):
                with open(boot_image.build(kernel), "rb") as file:
                    self.assertEqual(file.read(), ELF)
                with open(kernel.vmlinuz, "wb"):
                    pass

    def test_an_image_that_qemu_cannot_boot_unpacked_is_booted_packed(self):
        with mock.patch.dict(os.environ, {"COLLWIRE_FULL": "0"}):
            for image in (b"", bz_image(b"another packer"), bz_image(lzma.compress(b"\x7fELF without the note")), bz_image(lzma.compress(ELF)[:40]),
                          b"\0" * 0x400 + lzma.compress(ELF)):
                kernel = self.with_image(image)
                self.assertEqual(boot_image.build(kernel), kernel.vmlinuz)

    def test_all_tests_boot_the_image_of_the_package(self):
        kernel = self.with_image(bz_image(lzma.compress(ELF)))
        with mock.patch.dict(os.environ, {"COLLWIRE_FULL": "1"}):
            self.assertEqual(boot_image.build(kernel), kernel.vmlinuz)

    def with_image(self, image):
        directory = tempfile.mkdtemp(dir=self.cache)
        make(directory, "linux-image-5.1", "5.1-1")
        kernel = kernels.Kernel(directory)
        with open(kernel.vmlinuz, "wb") as file:
            file.write(image)
        return kernel


# With the note for QEMU (the kernel's documentation: x86/pvh): Xen's number 18.
ELF = b"\x7fELF the kernel" + struct.pack("<III", 4, 8, 18) + b"Xen\0" + struct.pack("<Q", 0x1000000)


def bz_image(payload):
    """As the boot protocol has it: four sectors of setup code, 16 bytes of something, the packed kernel, and its size."""
    image = bytearray(5 * 512 + 16)
    image[0x1F1] = 4
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", image, 0x248, 16, len(payload) + 4)
    return bytes(image) + payload + struct.pack("<I", len(ELF))


if __name__ == "__main__":
    unittest.main()
