# SPDX-License-Identifier: Apache-2.0
"""A recorder on this machine, of a test."""

import atexit
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))

import recorder_status  # noqa: E402  (the path has to be set first)

SKIPPED = 77
LIMIT_S = 120


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


def wait_until(is_true, what):
    end_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < end_s, f"never happened: {what}"
        time.sleep(0.01)


class Recorder:
    """Records when its constructor returns; skips the test where it cannot. Ends at the latest with the test: a recorder that stays would arm the guests of
    the next one."""

    def __init__(self, collwire, directory, *options, environment=None):
        self.directory, self.took_s = directory, 0.0
        self.words = f"{directory}.words"
        with open(self.words, "w", encoding="utf-8") as words:
            self.process = subprocess.Popen([collwire, "record", "-o", directory, "--no-nccl", *options], env=environment, stdin=subprocess.DEVNULL,
                                            stderr=words)
        atexit.register(self.process.kill)

        def has_started():
            status = self.process.poll()
            if reason := recorder_status.lacks(status, self.said()):
                skip(reason)
            assert status is None, self.said()
            return "recording\n" in self.said()

        wait_until(has_started, "recording")

    def said(self):
        with open(self.words, encoding="utf-8") as words:
            return words.read()

    def end(self):
        """Exit status, and how long it took to end."""
        since_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=LIMIT_S)
        self.took_s = time.monotonic() - since_s
        return status, self.took_s
