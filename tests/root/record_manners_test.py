#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `collwire record` promises on its command line, on this machine: exit statuses, who may read a capture, and what it says without privileges
and without an RDMA device.

record_manners_test.py"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import recorder_status  # noqa: E402  (the path has to be set first)

COLLWIRE = os.path.join(ROOT, "build", "release", "collwire")
SKIPPED = 77
NOBODY = 65534
LIMIT_S = 120
DEVICES = "/sys/class/infiniband"


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


def record(*options, prefix=()):
    """Exit status and words of a recorder that ends by itself."""
    done = subprocess.run([*prefix, COLLWIRE, "record", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    words = done.stdout + done.stderr
    print(f"collwire record {' '.join(options)}: status {done.returncode}\n{words}", flush=True)
    return done.returncode, words


def check_command(directory):
    """The command starts when everything is recorded, and its exit status is the recorder's. The capture is for its owner alone."""
    marked = os.path.join(directory, "started")
    status, words = record("-o", f"{directory}/command", "--", "sh", "-c", f"touch {marked}; exit 7")
    if reason := recorder_status.lacks(status, words):
        skip(reason)
    assert status == 7 and "recording\n" in words and os.path.exists(marked), status
    modes = [stat.S_IMODE(os.stat(entry.path).st_mode) for entry in os.scandir(f"{directory}/command")]
    assert modes == [0o600], modes


def check_duration(directory):
    status, _ = record("-o", f"{directory}/duration", "--duration", "1s")
    assert status == 0, status


def check_sigterm(directory):
    """A recording that is ended in order ends with 0."""
    with open(f"{directory}/sigterm.log", "w+", encoding="utf-8") as log:
        with subprocess.Popen([COLLWIRE, "record", "-o", f"{directory}/sigterm"], stdin=subprocess.DEVNULL, stderr=log) as recorder:
            end_s = time.monotonic() + LIMIT_S
            while "recording\n" not in said(log):
                assert recorder.poll() is None and time.monotonic() < end_s, said(log)
                time.sleep(0.02)
            recorder.send_signal(signal.SIGTERM)
            assert recorder.wait(timeout=LIMIT_S) == 0, said(log)


def said(log):
    log.seek(0)
    return log.read()


def check_unprivileged():
    """Refused, with the way that needs no privilege."""
    directory = tempfile.mkdtemp()
    try:
        os.chown(directory, NOBODY, NOBODY)
        nobody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--no-new-privs"]
        status, words = record("-o", directory, prefix=nobody)
        assert status == recorder_status.NOT_PERMITTED and not os.listdir(directory), status
        assert "not permitted" in words and "--counters-only" in words, words
    finally:
        shutil.rmtree(directory)


def check_no_device(directory):
    """Without an RDMA device there is nothing to record but sockets of NCCL's."""
    status, words = record("--no-nccl", "-o", f"{directory}/no-device", "--duration", "1s")
    assert status == recorder_status.UNSUPPORTED and "Fix: " in words, status
    status, words = record("-o", f"{directory}/sockets-only", "--duration", "1s")
    assert status == 0 and "no RDMA device" in words, status


def main():
    if os.geteuid() != 0:
        skip("recording needs root")
    with tempfile.TemporaryDirectory() as directory:
        check_command(directory)
        check_unprivileged()
        check_duration(directory)
        check_sigterm(directory)
        has_devices = os.path.isdir(DEVICES) and os.listdir(DEVICES)
        if has_devices:
            print("this machine has RDMA devices: what is said without one is not checked")
        else:
            check_no_device(directory)


if __name__ == "__main__":
    main()
