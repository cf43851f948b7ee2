#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo on one machine: official NCCL on the CUDA test double. Each rank is a node of its own, connected by TCP sockets. collwire records
it from outside and prints the report.

quick.py --library libnccl.so.2 --out DIR [--after SECONDS]      (tools/demo --quick builds, fetches NCCL and becomes root first)"""

import argparse
import ctypes
import glob
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # it runs as root
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "cuda_double")]

import double_job  # noqa: E402  (the path has to be set first)
import verdict  # noqa: E402

COLLWIRE = os.path.join(ROOT, "build", "release", "collwire")
DOUBLE = os.path.join(ROOT, "build", "release", "tests", "cuda_double")
RANKS = 4
ITERATIONS = 3
LIMIT_S = 300  # for the job and the recording, even if this program dies
START_LIMIT_S = 60
NOT_PERMITTED = 3
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_begin = time.monotonic()
_before_s = 0  # seconds spent in tools/demo


class Problem(Exception):
    """An error of one line (what, where, fix) with an exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def say(text):
    print(f"[{_before_s + time.monotonic() - _begin:4.0f} s] {text}", flush=True)


def end_in_order(number, _frame):
    # Ctrl-C arrives twice: from the terminal, and through the script that waits for this program.
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def as_recorder(mask):
    # Ctrl-C reaches this program only, which stops the recorder after the job. If this program dies, the recorder stops, too.
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.setpgid(0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


class Recorder:
    """Runs `collwire record` for the duration of the block."""

    def __init__(self, capture, library):
        self.said = ""
        self.process = None
        # Without --nccl a kernel without kprobes finds the ranks once a second: by then they have made their first calls.
        self._words = [COLLWIRE, "record", "-o", capture, "--nccl", library, "--duration", f"{LIMIT_S}s"]

    def __enter__(self):
        try:
            with double_job.signals_held() as mask:
                self.process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: as_recorder(mask))
            self._wait_until_recording()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        self._end()

    def _wait_until_recording(self):
        end = time.monotonic() + START_LIMIT_S
        while "recording" not in self.said.splitlines():
            ready, _, _ = select.select([self.process.stderr], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.process.stderr.fileno(), 4096) if ready else b""
            if not part:
                self._end()
                raise Problem(f"collwire record did not start: {self.said.strip() or 'no output'}", self.process.returncode or 1)
            self.said += part.decode(errors="replace")

    def _end(self):
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
            self.said += self.process.communicate()[1].decode(errors="replace")


def run_job(library, scratch):
    """Each rank has its own NCCL_HOSTID, so that NCCL treats it as a node and uses sockets. The environment is for NCCL and the double;
    collwire needs none."""
    job = double_job.Job(library, DOUBLE, RANKS, limit_s=LIMIT_S,
                         environment={"LD_PRELOAD": f"{DOUBLE}/libcuda_double.so", "NCCL_NET": "Socket", "NCCL_SHM_DISABLE": "1"})
    try:
        double_job.run_job(job, scratch, "job", ["--plan", "training", "--count", str(ITERATIONS)])
    except (AssertionError, subprocess.SubprocessError) as problem:
        raise Problem(f"the job failed: {problem}") from problem


def remove_earlier(out):
    for path in [*glob.glob(f"{glob.escape(out)}/capture/*.cwc"), f"{out}/report.json"]:
        if os.path.exists(path):
            os.remove(path)


def demonstrate(library, out):
    os.makedirs(out, exist_ok=True)
    remove_earlier(out)
    version = ".".join(str(part) for part in double_job.version_of(library))
    with tempfile.TemporaryDirectory(prefix="collwire-demo-") as scratch:
        say("collwire record")
        with Recorder(f"{out}/capture", library) as recorder:
            say(f"official NCCL {version}: {RANKS} ranks on this machine, each one a node for NCCL, over NET/Socket; no GPU: CUDA is a test double")
            run_job(library, scratch)
        if recorder.process.returncode != 0:
            raise Problem(f"collwire record exited with {recorder.process.returncode}: {recorder.said.strip()}")
        say("collwire report")
        status = subprocess.run([COLLWIRE, "report", f"{out}/capture", "--json", f"{out}/report.json", "--detail"], check=False).returncode
        if status != 0:
            raise Problem(f"collwire report exited with {status}")
        with open(f"{out}/report.json", encoding="utf-8") as file:
            report = json.load(file)
        if not verdict.compare(report, [f"{scratch}/truth.{rank}" for rank in range(RANKS)], [f"{scratch}/job.{rank}" for rank in range(RANKS)]):
            raise Problem(f"the report differs from the log of the double; see {out}/report.json")
    say(f"done, {time.monotonic() - _begin:.0f} s after build and download; capture and report are in {out}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--after", type=int, default=0, help="seconds that have passed already")
    arguments = parser.parse_args()
    global _before_s
    _before_s = arguments.after
    if os.geteuid() != 0:
        print("demo: recording needs root. Fix: sudo tools/demo --quick", file=sys.stderr)
        return NOT_PERMITTED
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end_in_order)
    try:
        demonstrate(arguments.library, arguments.out)
    except (Problem, OSError) as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return getattr(problem, "status", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
