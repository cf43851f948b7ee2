# SPDX-License-Identifier: Apache-2.0
"""Stock kernels of Debian and Ubuntu: the versions of kernels.json, fetched, unpacked and cached. Nothing is installed on the machine."""

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

from . import debian_apt
from .report import LabError, progress

RECHECK_S = 7 * 24 * 3600


def catalogue():
    with open(os.path.join(os.path.dirname(__file__), "kernels.json"), encoding="utf-8") as source:
        return json.load(source)


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return os.path.join(os.path.abspath(base), "collwire", "lab")
    return os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "build", "lab-cache")


class Kernel:
    """An unpacked kernel package. release is what uname -r will say; paths are absolute."""

    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "kernel.json"), encoding="utf-8") as source:
            about = json.load(source)
        self.package = about["package"]
        self.version = about["version"]
        self.release = about["release"]
        self.vmlinuz = os.path.join(directory, about["vmlinuz"])
        self.modules = os.path.join(directory, about["modules"])  # holds <release>/modules.dep


def _load(directory):
    try:
        kernel = Kernel(directory)
    except (OSError, ValueError, KeyError):
        return None
    complete = os.path.exists(kernel.vmlinuz) and os.path.exists(os.path.join(kernel.modules, kernel.release, "modules.dep"))
    return kernel if complete else None


def _resolve(apt, series, entry):
    """The packages to fetch, [(name, version)], the image first."""
    chosen = None
    if entry["image"]:
        for version, depends in apt.versions(entry["image"]):
            if version == entry["version"]:
                chosen = (entry["image"], version, depends)
    if chosen is None:
        for name in apt.names("linux-image-"):
            if re.fullmatch(entry["pattern"], name):
                for version, depends in apt.versions(name):
                    if chosen is None or debian_apt.newer(version, chosen[1]):
                        chosen = (name, version, depends)
        if chosen is None:
            raise LabError(f"no package for kernel {series} in {', '.join(entry['suites'])}. "
                           "Fix: update tools/lab_lib/kernels.json")
        if entry["image"]:
            progress(f"note: {entry['image']} {entry['version']} is not in the archive any more, using {chosen[0]} {chosen[1]}")
    name, version, depends = chosen
    # Debian's from 7.2 on is an empty package that depends on these three; Ubuntu's depends on its modules.
    parts = re.findall(r"(linux-(?:base|binary|modules)-[0-9][^ ,|]*)", depends)
    parts += [name.replace("linux-image-", prefix) for prefix in entry.get("with", [])]
    return [(name, version)] + [(part, version) for part in parts]


def _only(pattern, what):
    found = glob.glob(pattern)
    if len(found) != 1:
        raise LabError(f"expected one {what} in the kernel package, found {len(found)} ({pattern}). Fix: remove the lab's cache and try again")
    return found[0]


def check_hashes(debs, entry):
    """Packages of Ubuntu come without a check of signatures."""
    for deb in debs:
        expected = entry["sha256"].get(os.path.basename(deb).split("_")[0])
        with open(deb, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise LabError(f"{os.path.basename(deb)}: SHA-256 {found}, not {expected} as in tools/lab_lib/kernels.json. "
                           "Fix: another mirror (COLLWIRE_UBUNTU_MIRROR)")


def _unpack(debs, packages, staging):
    for deb in debs:
        done = subprocess.run(["dpkg-deb", "-x", deb, staging], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"{os.path.basename(deb)} could not be unpacked: {done.stderr.strip()}. Fix: free disk space, then try again")
        os.unlink(deb)
    top = "usr/lib/modules" if os.path.isdir(os.path.join(staging, "usr/lib/modules")) else "lib/modules"
    release = os.path.basename(_only(os.path.join(staging, top, "*"), "directory of modules"))
    images = glob.glob(os.path.join(staging, "boot/vmlinuz-*")) or [os.path.join(staging, top, release, "vmlinuz")]
    if not os.path.exists(images[0]):
        raise LabError(f"no vmlinuz in {packages[0][0]} {packages[0][1]}. Fix: pin another version in tools/lab_lib/kernels.json")
    if top != "lib/modules":  # depmod -b searches there
        os.makedirs(os.path.join(staging, "lib"), exist_ok=True)
        os.rename(os.path.join(staging, top), os.path.join(staging, "lib/modules"))
        images[0] = images[0].replace("/usr/lib/modules/", "/lib/modules/")
    done = subprocess.run(["depmod", "-b", staging, release], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"depmod failed for {release}: {done.stderr.strip()[:200]}. Fix: apt-get install kmod")
    about = {"package": packages[0][0], "version": packages[0][1], "release": release,
             "vmlinuz": os.path.relpath(images[0], staging), "modules": "lib/modules"}
    with open(os.path.join(staging, "kernel.json"), "w", encoding="utf-8") as out:
        json.dump(about, out, indent=1)


def _fetch(cache, series, entry):
    archive = entry.get("archive", "debian")
    progress(f"fetching kernel {series} from {archive.capitalize()} {entry['suites'][0]}")
    apt = debian_apt.PrivateApt(os.path.join(cache, "apt", series), entry["suites"], archive=archive)
    apt.update()
    packages = _resolve(apt, series, entry)
    final = os.path.join(cache, "kernels", f"{series}_{packages[0][0]}_{packages[0][1]}")
    if _load(final) is None:
        staging = os.path.join(cache, "kernels", f"staging-{series}")
        os.makedirs(staging)
        debs = apt.download(packages, staging)
        if archive != "debian":
            check_hashes(debs, entry)
        _unpack(debs, packages, staging)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(staging, final)
    with open(_resolved_path(cache, series), "w", encoding="utf-8") as out:
        json.dump({"image": entry["image"], "version": entry["version"], "directory": os.path.basename(final)}, out)
    return _load(final)


def _resolved_path(cache, series):
    """What the archive had for an entry of kernels.json when it was last asked; the file's time is that of the question."""
    return os.path.join(cache, f"resolved-{series}.json")


def _resolved_lately(cache, series, entry):
    """The cached kernel that the archive's last answer to this very entry named, None if that is long ago."""
    path = _resolved_path(cache, series)
    try:
        age_s = time.time() - os.path.getmtime(path)
        with open(path, encoding="utf-8") as source:
            answer = json.load(source)
        if age_s > RECHECK_S or (answer["image"], answer["version"]) != (entry["image"], entry["version"]):
            return None
        return _load(os.path.join(cache, "kernels", answer["directory"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _any_cached(cache, series):
    """The kernel of a series that was unpacked last, None without one."""
    directories = glob.glob(os.path.join(glob.escape(os.path.join(cache, "kernels")), f"{series}_*"))
    for directory in sorted(directories, key=os.path.getmtime, reverse=True):
        kernel = _load(directory)
        if kernel:
            return kernel
    return None


def get(series):
    """The kernel of a series of kernels.json: from the cache, else from its archive. One that the archive no longer has, or
    that cannot be fetched now, is stood in for by another of its series, with a note. Raises LabError."""
    entry = catalogue()[series]
    cache = cache_directory()
    os.makedirs(os.path.join(cache, "kernels"), exist_ok=True)
    with open(os.path.join(cache, f"lock-{series}"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only the lock holder stages a download: what is there now was left by an earlier run that died.
        shutil.rmtree(os.path.join(cache, "kernels", f"staging-{series}"), ignore_errors=True)
        if entry["image"]:
            kernel = _load(os.path.join(cache, "kernels", f"{series}_{entry['image']}_{entry['version']}"))
            if kernel:
                return kernel
        kernel = _resolved_lately(cache, series, entry)
        if kernel:
            if entry["image"]:
                progress(f"note: {entry['image']} {entry['version']} is not in the archive any more, using the cached {kernel.package} {kernel.version}")
            return kernel
        try:
            return _fetch(cache, series, entry)
        except LabError as error:
            kernel = _any_cached(cache, series)
            if kernel is None:
                raise
            progress(f"note: {error}; using the cached {kernel.package} {kernel.version}")
            return kernel
