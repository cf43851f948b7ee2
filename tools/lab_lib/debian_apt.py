# SPDX-License-Identifier: Apache-2.0
"""A private apt with its own sources, lists and cache: fetches packages of another suite, of Debian or Ubuntu, without touching the machine's apt."""

import glob
import os
import re
import subprocess

from .report import NotPossible

DEFAULT_MIRROR = "http://deb.debian.org/debian"
DEFAULT_SECURITY_MIRROR = "http://deb.debian.org/debian-security"
DEFAULT_UBUNTU_MIRROR = "http://archive.ubuntu.com/ubuntu"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Settings of the machine for reaching the archive. The rest of its apt configuration is not used.
_KEPT_SETTING = re.compile(r"^Acquire::(http|https|ftp|Retries|ForceIPv4|ForceIPv6|proxy)\b", re.IGNORECASE)


def _machine_uris():
    uris = []
    for path in ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*")):
        try:
            with open(path, encoding="utf-8", errors="replace") as source:
                text = source.read()
        except OSError:
            continue
        for line in text.splitlines():
            line = line.strip()
            if path.endswith(".sources"):
                if line.lower().startswith("uris:"):
                    uris += line[5:].split()
            elif line.startswith("deb "):
                words = re.sub(r"\[[^]]*\]", "", line).split()
                if len(words) > 1:
                    uris.append(words[1])
    return [uri.rstrip("/") for uri in uris]


def mirrors():
    """(main, security): the Debian mirrors of this machine, else the defaults above."""
    main, security = DEFAULT_MIRROR, DEFAULT_SECURITY_MIRROR
    for uri in reversed(_machine_uris()):
        if uri.endswith("/debian-security"):
            security = uri
        elif uri.endswith("/debian"):
            main = uri
    return main, security


def ubuntu_mirror():
    """The Ubuntu mirror of this machine or of its environment (as tools/bare-root has it), else the default above. It has the security updates, too."""
    own = [uri for uri in _machine_uris() if uri.endswith("/ubuntu")]
    return os.environ.get("COLLWIRE_UBUNTU_MIRROR") or (own or [DEFAULT_UBUNTU_MIRROR])[0]


def _machine_settings():
    result = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    return [line for line in result.stdout.splitlines() if _KEPT_SETTING.match(line)]


class PrivateApt:
    """apt for the given suites of an archive (amd64), with all its state in one directory. Debian has no keys of Ubuntu: the caller compares the hashes of
    what it fetches from there."""

    def __init__(self, directory, suites, components="main", archive="debian"):
        if archive == "debian" and not os.path.exists(KEYRING):
            raise NotPossible(f"{KEYRING} is missing: Debian packages cannot be verified. "
                           "Fix: apt-get install debian-archive-keyring")
        trust = f"signed-by={KEYRING}" if archive == "debian" else "trusted=yes"
        self._directory = directory
        for name in ("lists/partial", "cache/archives/partial", "log"):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
        main, security = mirrors() if archive == "debian" else (ubuntu_mirror(),) * 2
        lines = []
        for suite in suites:
            uri = security if suite.endswith("-security") else main
            # A stale mirror is safe here: signatures are still checked, and versions are pinned.
            lines.append(f"deb [arch=amd64 {trust} check-valid-until=no] {uri} {suite} {components}\n")
        self._write("sources.list", "".join(lines))
        self._write("status", "")
        settings = [f'Dir::Etc::{name} "/dev/null";' for name in ("parts", "main", "sourceparts", "preferences", "preferencesparts")]
        settings += [
            f'Dir::Etc::sourcelist "{directory}/sources.list";',
            f'Dir::State "{directory}";',
            f'Dir::State::lists "{directory}/lists";',
            f'Dir::State::status "{directory}/status";',
            f'Dir::Cache "{directory}/cache";',
            f'Dir::Log "{directory}/log";',
            'APT::Architecture "amd64";',
            'APT::Architectures "amd64";',
            'APT::Sandbox::User "root";',
            'Acquire::Languages "none";',
        ] + _machine_settings()
        self._write("apt.conf", "\n".join(settings) + "\n")
        self._environment = dict(os.environ, APT_CONFIG=os.path.join(directory, "apt.conf"), LC_ALL="C")

    def _write(self, name, text):
        with open(os.path.join(self._directory, name), "w", encoding="utf-8") as out:
            out.write(text)

    def _run(self, *command, cwd=None):
        return subprocess.run(command, env=self._environment, cwd=cwd, capture_output=True, text=True, check=False)

    def update(self):
        result = self._run("apt-get", "update", "-q")
        if result.returncode != 0 or re.search(r"^(E|Err|W: Failed)", result.stdout + result.stderr, re.MULTILINE):
            reason = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith(("E:", "W:", "Err"))]
            raise NotPossible("cannot fetch the package lists: "
                           + (reason[0] if reason else f"apt-get update exited with {result.returncode}")
                           + ". Fix: check the network, the proxy settings of apt and the mirror in its sources")

    def names(self, prefix):
        return self._run("apt-cache", "pkgnames", prefix).stdout.split()

    def versions(self, name):
        """[(version, depends)] of a package, unordered; empty if the archive lacks it."""
        found = []
        for paragraph in self._run("apt-cache", "show", name).stdout.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"^[A-Za-z-]+: ", line))
            if fields.get("Package") == name and "Version" in fields:
                found.append((fields["Version"], fields.get("Depends", "")))
        return found

    def download(self, packages, directory):
        """Fetches [(name, version)] into directory and returns the paths of the .deb files. apt verifies the checksums."""
        before = set(os.listdir(directory))
        result = self._run("apt-get", "download", "-q", *[f"{name}={version}" for name, version in packages], cwd=directory)
        if result.returncode != 0:
            reason = [line for line in result.stderr.splitlines() if line.startswith("E:")]
            raise NotPossible(f"cannot download {packages[0][0]}: {reason[0] if reason else result.returncode}. "
                           "Fix: check the network and the mirror in apt's sources")
        return [os.path.join(directory, name) for name in sorted(set(os.listdir(directory)) - before) if name.endswith(".deb")]


def newer(left, right):
    return subprocess.run(["dpkg", "--compare-versions", left, "gt", right], check=False).returncode == 0
