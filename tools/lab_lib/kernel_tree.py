# SPDX-License-Identifier: Apache-2.0
"""Headers, build programs and RDMA core sources of a lab kernel, to build modules for it. From Debian packages of the same version,
cached like the kernel."""

import fcntl
import glob
import os
import re
import shutil
import subprocess

from . import debian_apt, kernels
from .report import LabError, progress

# Only these folders of the kernel sources are kept.
_SOURCES = ("drivers/infiniband/core", "drivers/infiniband/sw/rxe")


class KernelTree:
    """A directory laid out like Debian's /usr/src. May be copied before relocate(). Paths are absolute."""

    def __init__(self, directory):
        self.directory = directory
        self.build = _only(directory, "usr/src/linux-headers-*-amd64")    # make -C this
        self.source = _only(directory, "usr/src/linux-headers-*-common")  # headers, and the sources of _SOURCES

    def copy(self, directory):
        """Returns a copy to change and build in."""
        shutil.copytree(self.directory, directory, symlinks=True)
        tree = KernelTree(directory)
        with open(os.path.join(tree.build, "Makefile"), "w", encoding="ascii") as out:
            out.write(f"include {tree.source}/Makefile\n")  # the original has an absolute path, too
        return tree


def _only(directory, pattern):
    found = glob.glob(os.path.join(directory, pattern))
    if len(found) != 1:
        raise LabError(f"expected one {pattern} in the kernel's headers, found {len(found)}. Fix: remove the lab's cache and try again")
    return found[0]


def _packages(apt, kernel):
    """[(name, version)] of the headers, their dependencies, and the sources."""
    headers = kernel.package.replace("linux-image-", "linux-headers-")
    depends = dict(apt.versions(headers)).get(kernel.version)
    if depends is None:
        raise LabError(f"the archive has no {headers} {kernel.version}. Fix: pin another version in tools/lab_lib/kernels.json")
    names = [headers] + re.findall(r"(linux-(?:headers-[^ ,]*-common|kbuild-[^ ,]*))", depends)
    names.append("linux-source-" + re.match(r"\d+\.\d+", kernel.release).group())
    packages = []
    for name in names:
        if kernel.version not in dict(apt.versions(name)):
            raise LabError(f"the archive has no {name} {kernel.version}. Fix: pin another version in tools/lab_lib/kernels.json")
        packages.append((name, kernel.version))
    return packages


def _run(command, what, **options):
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise LabError(f"cannot unpack {what}: {done.stderr.decode(errors='replace').strip()[-200:]}. "
                       "Fix: free disk space, then try again")
    return done.stdout


def _unpack(debs, staging):
    for deb in debs:
        _run(["dpkg-deb", "-x", deb, staging], os.path.basename(deb))
        os.unlink(deb)
    archive = _only(staging, "usr/src/linux-source-*.tar.xz")
    wanted = [f"*/{folder}" for folder in _SOURCES]
    source = KernelTree(staging).source
    _run(["tar", "-xJf", archive, "-C", source, "--strip-components=1", "--wildcards", *wanted], os.path.basename(archive))
    os.unlink(archive)
    for folder in _SOURCES:
        _only(source, folder)


def get(series):
    """The tree for a series in kernels.json: from the cache, else from Debian's archive. Raises LabError."""
    kernel = kernels.get(series)
    cache = kernels.cache_directory()
    final = os.path.join(cache, "trees", f"{series}_{kernel.package}_{kernel.version}")
    os.makedirs(os.path.dirname(final), exist_ok=True)
    with open(os.path.join(cache, f"lock-tree-{series}"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        staging = os.path.join(cache, "trees", f"staging-{series}")
        shutil.rmtree(staging, ignore_errors=True)  # left by an earlier run that died
        if not os.path.isdir(final):
            progress(f"fetching headers and sources of kernel {kernel.release} (150 MB)")
            apt = debian_apt.PrivateApt(os.path.join(cache, "apt", f"{series}-tree"), kernels.catalogue()[series]["suites"])
            apt.update()
            os.makedirs(staging)
            _unpack(apt.download(_packages(apt, kernel), staging), staging)
            os.rename(staging, final)
    return KernelTree(final)
