# SPDX-License-Identifier: Apache-2.0
"""A recorder on this machine, of a test."""

import atexit
import signal
import subprocess
import sys
import time

SKIPPED = 77
NOT_PERMITTED, NOT_POSSIBLE = 3, 4
LIMIT_S = 60


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
        self.directory = directory
        self.words = f"{directory}.words"
        with open(self.words, "w", encoding="utf-8") as words:
            self.process = subprocess.Popen([collwire, "record", "-o", directory, "--no-nccl", *options], env=environment, stdin=subprocess.DEVNULL,
                                            stderr=words)
        atexit.register(self.process.kill)

        def has_started():
            status = self.process.poll()
            if status in (NOT_PERMITTED, NOT_POSSIBLE):
                skip(self.said().strip().splitlines()[-1])
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
        return status, time.monotonic() - since_s
