# SPDX-License-Identifier: Apache-2.0
"""The command of the systemd unit with the unit's rights, as far as a machine without systemd can: its capabilities, a read-only file system but for the
state directory, its umask. And a job of official NCCL for it, of another user, in a folder that only this user can enter."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # it runs as root
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "cuda_double"), os.path.join(ROOT, "tools", "demo_lib")]

import double_job  # noqa: E402  (the path has to be set first)

UNIT = os.path.join(ROOT, "deploy", "systemd", "collwire-record.service")
NOBODY = 65534
START_LIMIT_S = 120
RANKS = 4


def settings():
    """[Service] of the unit: name to its values, in order. An empty value starts a list again."""
    found = {}
    with open(UNIT, encoding="utf-8") as file:
        for line in re.findall(r"^(\w+)=(.*)$", file.read().split("[Service]")[1].split("[Install]")[0], re.MULTILINE):
            found.setdefault(line[0], []).append(line[1])
    return found


def capabilities():
    return [name.removeprefix("CAP_").lower() for name in settings()["CapabilityBoundingSet"][0].split()]


def command(state, values):
    """Words of ExecStart, with the unit's defaults and `values` in place of its variables."""
    variables = dict(pair.split("=", 1) for pair in settings()["Environment"][0].split())
    variables.update(values)
    words = []
    for word in settings()["ExecStart"][0].replace("/var/lib/collwire", state).split():
        if match := re.fullmatch(r"\$(\w+)", word):
            words += variables[match.group(1)].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda found: variables[found.group(1)], word))
    return words


def confined(words, state, kept):
    """With these capabilities at most, no new privileges, and a file system that is read-only but for `state`, /dev, /proc and /run."""
    script = "\n".join(["mount --bind \"$1\" \"$1\"", "mount -o remount,bind,ro /", "for folder in /sys /proc/sys; do mount --bind $folder $folder",
                        "mount -o remount,bind,ro $folder; done", "umask 0077", "shift", "exec \"$@\""])
    rights = ",".join(["-all", *(f"+{name}" for name in kept)])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", state, "setpriv", f"--bounding-set={rights}", "--inh-caps=-all",
            "--no-new-privs", *words]


class Recorder:
    """`words`, from the line `recording` on. It is the leader of a group of its own."""

    def __init__(self, words):
        self.said = ""
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)

    def wait_until_recording(self):
        end = time.monotonic() + START_LIMIT_S
        while "recording" not in self.said.splitlines():
            ready, _, _ = select.select([self.process.stderr], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.process.stderr.fileno(), 4096) if ready else b""
            if not part:
                self.end()
                return False
            self.said += part.decode(errors="replace")
        return True

    def end(self, number=signal.SIGTERM):
        if self.process.returncode is None:
            self.process.send_signal(number)
            self.said += self.process.communicate(timeout=START_LIMIT_S)[1].decode(errors="replace")
        return self.process.returncode


class JobOfAnother(double_job.Job):
    def command(self, program):
        return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *super().command(program)]


def prepare_job(directory, library, double):
    """NCCL and the test double of CUDA in a folder of user nobody."""
    home = os.path.join(directory, "home")
    os.makedirs(f"{home}/logs")
    shutil.copytree(double, f"{home}/double", symlinks=True, ignore=shutil.ignore_patterns("CMakeFiles", "*.cmake"))
    shutil.copy(library, f"{home}/libnccl.so.2")
    for folder, names, files in os.walk(home):
        for name in names + files:
            os.chown(os.path.join(folder, name), NOBODY, NOBODY)
    os.chown(home, NOBODY, NOBODY)
    os.chmod(home, 0o700)
    os.chmod(directory, 0o755)
    environment = {"LD_PRELOAD": f"{home}/double/libcuda_double.so", "NCCL_NET": "Socket", "NCCL_SHM_DISABLE": "1"}
    return JobOfAnother(f"{home}/libnccl.so.2", f"{home}/double", RANKS, limit_s=120, environment=environment), f"{home}/logs"


def run_job(job, logs):
    shutil.rmtree(logs)
    os.mkdir(logs)
    os.chown(logs, NOBODY, NOBODY)
    double_job.run_job(job, logs, "job", ["--plan", "training", "--count", "3"])
