#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record --dry-run --calibrate` against the benchmark of posts, which measures the same for longer: a trap and a post within 20 %.

calibrate_test.py COLLWIRE BENCH"""

import os
import re
import subprocess
import sys

COLLWIRE, BENCH = sys.argv[1:3]
SKIPPED = 77
NOT_PERMITTED, NOT_POSSIBLE = 3, 4
TOLERANCE = 0.2
TRIES = 8 # on a loaded machine


def calibrated():
    """Of a trap and of a post, in us."""
    done = subprocess.run([COLLWIRE, "record", "--dry-run", "--calibrate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode in (NOT_PERMITTED, NOT_POSSIBLE):
        print(f"skip: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    assert done.returncode == 0, done
    assert "this dry run attached none" in done.stdout, done.stdout
    return (float(re.search(r"a trap takes ([\d.]+) us", done.stdout)[1]),
            float(re.search(r"one post of one work request to a NIC ([\d.]+) us", done.stdout)[1]))


def benchmarked():
    """The same, the least of what the benchmark prints for posts of one request and emulated instructions."""
    done = subprocess.run([BENCH, "--rounds", "1"], stdout=subprocess.PIPE, text=True, check=True)
    rows = re.findall(r" emulated +1 +([\d.]+) +(\d+) +\d+ +(\d+) ", done.stdout)
    assert len(rows) > 3, done.stdout
    return min(float(empty) - float(untraced) for untraced, empty, _ in rows) / 1e3, min(float(ours) for _, _, ours in rows) / 1e3


def main():
    if os.geteuid() != 0:
        print("skip: probes need root")
        return SKIPPED
    alone = subprocess.run([COLLWIRE, "record", "--calibrate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert alone.returncode == 2 and "--dry-run" in alone.stderr, alone
    for _ in range(TRIES):
        here, truth = calibrated(), benchmarked()
        print(f"trap {here[0]:.2f} us, the benchmark has {truth[0]:.2f}; post {here[1]:.2f} us, the benchmark has {truth[1]:.2f}", flush=True)
        if all(abs(a - b) <= TOLERANCE * b for a, b in zip(here, truth)):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
