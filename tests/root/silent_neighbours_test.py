#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that never answer, beside twenty that do: collwire goes on, names them and ends in time.

silent_neighbours_test.py SILENT_PROCESS LIKE_NCCL [SLACK]

SILENT_PROCESS is the program of silent_neighbours/silent_process.c, LIKE_NCCL a file that is taken for NCCL. Times are compared with those without a silent
process, and SLACK (1) multiplies what may
come on top: for a machine that has no CPU to spare. It is multiplied by how busy the machine is, too."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import busy_machine  # noqa: E402  (the path has to be set first)
import recorder_status  # noqa: E402

COLLWIRE = os.environ.get("COLLWIRE") or os.path.join(ROOT, "build", "release", "collwire")
SKIPPED = 77
SILENT_PROCESS, LIKE_NCCL = sys.argv[1:3]
SLACK = float(sys.argv[3]) if len(sys.argv) > 3 else 1
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
N_ANSWERING = 20
N_MANY = 100
LIMIT_S = 100
INSPECT_S, BEGIN_S, END_S, MANY_S = (SLACK * bound_s for bound_s in (3, 5, 1, 10))  # on top of what it takes without them
STOPPED_S = 4  # a standstill is 3 s


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


class Silent:
    """Ends with the test, in the order that lets the kernel end it: the file system first."""

    def __init__(self, directory, way, library="-"):
        self.mount = tempfile.mkdtemp(dir=directory)
        os.chmod(self.mount, 0o777)
        self.server = 0
        self.way = way
        self.process = subprocess.Popen([*(NOBODY if way == "mmap_lock" else []), SILENT_PROCESS, way, self.mount, library], stdout=subprocess.PIPE, text=True)
        atexit.register(self.end)

    def wait(self):
        line = self.process.stdout.readline().split()
        if not line:
            skip(f"no process that is silent by {self.way} can be made here (status {self.process.wait()})")
        if self.way == "mmap_lock":  # the server says it
            self.server = int(line[2])
            assert int(line[1]) == self.process.pid, line
        else:
            self.server = int(line[2])
        return self

    def end(self):
        for pid in (self.server, self.process.pid):
            if pid != 0 and self.process.returncode is None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()


def inspect():
    since_s = time.monotonic()
    done = subprocess.run([COLLWIRE, "inspect", "--all", "--json"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIMIT_S)
    took_s = time.monotonic() - since_s
    words = done.stderr.decode(errors="replace")
    assert done.returncode == 0, (done.returncode, words)
    return {process["pid"] for process in json.loads(done.stdout)["processes"]}, words, took_s


class Recorder:
    def __init__(self, directory, *options):
        self.directory = directory
        self.words = f"{directory}.words"
        self.since_s = time.monotonic()
        with open(self.words, "w", encoding="utf-8") as words:
            self.process = subprocess.Popen([COLLWIRE, "record", "-o", directory, *options], stdin=subprocess.DEVNULL, stderr=words)
        atexit.register(self.process.kill)
        self.wait_for("recording\n")
        self.began_s = time.monotonic() - self.since_s

    def said(self):
        with open(self.words, encoding="utf-8") as words:
            return words.read()

    def wait_for(self, text):
        end_s = time.monotonic() + LIMIT_S
        while text not in self.said():
            status = self.process.poll()
            if reason := recorder_status.lacks(status, self.said()):
                skip(reason)
            assert status is None and time.monotonic() < end_s, self.said()
            time.sleep(0.01)

    def end(self):
        since_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=LIMIT_S)
        return status, time.monotonic() - since_s


def text_of(silent):
    return f"process {silent.process.pid}"


def is_whole(status, words):
    """Other jobs of this machine may lose what they lose."""
    return status == 0 or (status == 5 and "standstill" not in words)


def report(directory):
    subprocess.run([COLLWIRE, "report", directory, "--json", f"{directory}.json"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIMIT_S)
    with open(f"{directory}.json", encoding="utf-8") as file:
        return json.load(file)


def main():
    if os.geteuid() != 0:
        skip("needs root")
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.chmod(directory, 0o755)
    library = f"{directory}/libnccl.so.2"
    shutil.copy(LIKE_NCCL, library)
    answering = [subprocess.Popen(["sleep", "1000"], env={"LD_PRELOAD": library}, stdin=subprocess.DEVNULL) for _ in range(N_ANSWERING)]
    for process in answering:
        atexit.register(process.wait)
        atexit.register(process.kill)
    pids = {process.pid for process in answering}
    while not all("libnccl" in open(f"/proc/{pid}/maps", encoding="utf-8").read() for pid in pids):
        time.sleep(0.01)

    seen, _, inspect_s = inspect()
    assert pids <= seen, pids - seen
    recorder = Recorder(f"{directory}/alone")
    began_s = recorder.began_s
    status, ended_s = recorder.end()
    assert is_whole(status, recorder.said()), recorder.said()
    print(f"alone: inspect {inspect_s:.2f} s, recording after {began_s:.2f} s, ends in {ended_s:.2f} s", flush=True)

    for way in ("mmap_lock", "fuse_file"):
        silent = Silent(directory, way).wait()
        seen, words, took_s = inspect()
        print(f"{way}: inspect {took_s:.2f} s", flush=True)
        assert pids <= seen and text_of(silent) in words and busy_machine.is_within(took_s - inspect_s, INSPECT_S), (took_s, words)
        before = Recorder(f"{directory}/{way}")
        print(f"{way}: recording after {before.began_s:.2f} s", flush=True)
        before.wait_for(text_of(silent))
        assert busy_machine.is_within(before.began_s - began_s, BEGIN_S), before.said()
        during = Silent(directory, way).wait()
        before.wait_for(text_of(during))
        status, took_s = before.end()
        print(f"{way}: ends in {took_s:.2f} s: {before.said()}", flush=True)
        assert is_whole(status, before.said()) and busy_machine.is_within(took_s - ended_s, END_S), (status, took_s, before.said())
        silent.end()
        during.end()

    stopped = Recorder(f"{directory}/stopped")
    stopped.process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    stopped.process.send_signal(signal.SIGCONT)
    stopped.wait_for("stood still")
    status, _ = stopped.end()
    lost = report(stopped.directory)["loss"]
    print(f"stopped: status {status}, lost {lost}", flush=True)
    assert status == 5 and "standstill" in json.dumps(lost), (status, lost)

    many = [Silent(directory, "mmap_lock") for _ in range(N_MANY)]
    for silent in many:
        silent.wait()
    seen, words, took_s = inspect()
    print(f"{N_MANY}: inspect {took_s:.2f} s", flush=True)
    assert pids <= seen and busy_machine.is_within(took_s - inspect_s, MANY_S), (took_s, pids - seen)
    recorder = Recorder(f"{directory}/many")
    status, took_s = recorder.end()
    print(f"{N_MANY}: recording after {recorder.began_s:.2f} s, ends in {took_s:.2f} s", flush=True)
    assert is_whole(status, recorder.said()), recorder.said()
    assert busy_machine.is_within(recorder.began_s - began_s, MANY_S) and busy_machine.is_within(took_s - ended_s, END_S), recorder.said()


if __name__ == "__main__":
    main()
