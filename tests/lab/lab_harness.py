# SPDX-License-Identifier: Apache-2.0
"""What the tests of the lab share: starting it, its packet files, and what it must not leave behind."""

import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
COLLWIRE = os.path.join(ROOT, "build", "release", "collwire")
LAB = os.path.join(ROOT, "tools", "lab")
HERE = os.path.dirname(os.path.realpath(__file__))
SKIPPED = 77  # CTest: SKIP_RETURN_CODE


def need_root():
    if os.geteuid() != 0:
        print("skipped: the lab needs root")
        sys.exit(SKIPPED)


def add_arguments(parser):
    """What every test takes that runs on several kernels."""
    parser.add_argument("--kernel", default="6.1", help="a series of tools/lab")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")


def need_full(arguments):
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print(f"skipped: kernel {arguments.kernel} is for tools/test --full")
        sys.exit(SKIPPED)


def scratch():
    """A directory for results, removed at the end of the block."""
    return tempfile.TemporaryDirectory(prefix="collwire-lab-test-")


def start(*arguments):
    return subprocess.Popen([LAB, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run(*arguments):
    """(exit status, what it said)."""
    process = start(*arguments)
    said = process.communicate()[1]
    print(said)
    return process.returncode, said


def load(*path):
    with open(os.path.join(*path), encoding="utf-8") as source:
        return json.load(source)


def print_logs(out):
    for log in sorted(glob.glob(os.path.join(out, "node*", "job.log"))):
        with open(log, encoding="utf-8", errors="replace") as source:
            print(f"--- {os.path.relpath(log, out)}\n{source.read()}", flush=True)


def collwire_report(out, path, expected=0):
    """The report over node<N>/capture of all nodes, as JSON, left in `path` too."""
    captures = sorted(glob.glob(os.path.join(out, "node*", "capture")))
    words = [COLLWIRE, "report", *captures, "--topology", os.path.join(out, "topology.json"), "--json", path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, flush=True)
    assert done.returncode == expected, f"collwire report: exit status {done.returncode}, not {expected}"
    return load(path)


def compare(out, report_path, *options):
    """Holds the report against the packet captures."""
    done = subprocess.run([os.path.join(HERE, "truth", "compare.py"), out, report_path, *options], check=False)
    assert done.returncode == 0, "collwire and tshark differ"


def frames(path):
    """(source MAC, destination MAC, ethertype, original length, kept bytes) of every frame of a packet file."""
    with open(path, "rb") as source:
        data = source.read()
    assert struct.unpack_from("<I", data)[0] == 0xA1B2C3D4, path
    at = 24
    while at < len(data):
        kept, length = struct.unpack_from("<II", data, at + 8)
        frame = data[at + 16:at + 16 + kept]
        yield frame[6:12], frame[0:6], struct.unpack_from(">H", frame, 12)[0], length, frame
        at += 16 + kept


def is_roce(frame):
    """RoCE v2 over IPv4 without options: UDP to port 4791."""
    return frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7"


def mac(node, nic=0):
    return bytes((0x52, 0x54, 0, 0, nic, node + 1))


def processes_of(out):
    """Command lines of all living processes that name this directory of results."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as source:
                    line = source.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if out in line:
                found.append(f"{pid} {line[:120]}")
    return found


def interfaces():
    with open("/proc/net/dev", encoding="ascii") as source:
        return sorted(line.split(":")[0].strip() for line in source if ":" in line)


def expect_nothing_left(out, before):
    """The kernel ends the processes of a killed sandbox in its own time, which is short."""
    end = time.monotonic() + 10
    while processes_of(out) and time.monotonic() < end:
        time.sleep(0.05)
    left = processes_of(out)
    assert not left, f"processes left behind: {left}"
    assert interfaces() == before, f"interfaces changed: {before} -> {interfaces()}"
