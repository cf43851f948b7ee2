#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/demo --quick without building and fetching: its output, and that it leaves nothing, also if it is interrupted.

demo_quick_test.py [--version VERSION]"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import recorder_status  # noqa: E402  (the path has to be set first)

QUICK = os.path.join(ROOT, "tools", "demo_lib", "quick.py")
SKIPPED = 77
MARK = "COLLWIRE_DEMO_TEST"  # every process of a demo inherits it
LIMIT_S = 300


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


def library_of(version):
    fetched = subprocess.run([os.path.join(ROOT, "tools", "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        skip(fetched.stderr.strip())
    return fetched.stdout.strip()


def start(library, directory):
    scratch = os.path.join(directory, "scratch")
    os.makedirs(scratch, exist_ok=True)
    output = os.path.join(directory, "output")
    with open(output, "w", encoding="utf-8") as file:
        process = subprocess.Popen([QUICK, "--library", library, "--out", os.path.join(directory, "out")], stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, env={**os.environ, MARK: directory, "TMPDIR": scratch})
    return process, output


def said(output):
    with open(output, encoding="utf-8") as file:
        return file.read()


def left_processes(directory):
    mark = f"{MARK}={directory}".encode()
    left = []
    for environ in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(environ, "rb") as file:
                if mark in file.read().split(b"\0"):
                    left.append(environ.split("/")[2])
        except OSError:
            continue  # it has ended
    return left


def expect_nothing_left(directory):
    assert not left_processes(directory), left_processes(directory)
    assert not os.listdir(os.path.join(directory, "scratch"))


def check_whole(library):
    with tempfile.TemporaryDirectory() as directory:
        process, output = start(library, directory)
        status = process.wait(timeout=LIMIT_S)
        text = said(output)
        print(text)
        if reason := recorder_status.lacks(status, text):
            skip(reason)
        assert status == 0, status
        for part in ("CUDA is a test double", "Communicators", "Sent between ranks of communicator", " 0 of 296 figures", "100.0 %", "after build and download"):
            assert part in text, part
        expect_nothing_left(directory)
        assert len(glob.glob(f"{directory}/out/capture/*.cwc")) == 1
        assert os.path.exists(f"{directory}/out/report.json")


def check_interrupted(library):
    with tempfile.TemporaryDirectory() as directory:
        process, output = start(library, directory)
        end = time.monotonic() + LIMIT_S
        # Recorder, ranks and this program itself. Without a pause: between the start of a rank and the note of whom to end is the worst moment.
        while len(left_processes(directory)) < 6:
            assert time.monotonic() < end and process.poll() is None, said(output)
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=LIMIT_S)
        assert status == 128 + signal.SIGINT, (status, said(output))
        expect_nothing_left(directory)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="newest")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        skip("recording needs root")
    library = library_of(arguments.version)
    check_whole(library)
    check_interrupted(library)


if __name__ == "__main__":
    main()
