#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Costs of a launch that do not depend on the machine: at most two traps for a call and its launch, at most 100 bytes of them in a capture. The time of a
launch is printed and not judged: machines that run tests are busy.

cost_test.py --bench FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import argparse
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine

CHANNELS = ("1", "8", "32")
MOST_TRAPS, MOST_BYTES = 2.0, 100.0
COLUMNS = ("channels", "ops", "traps", "untraced", "empty", "ours", "empty-un", "ours-emp", "adds")


def run(arguments, library, directory):
    subprocess.run([f"{arguments.build}/nccl_layout", library, directory], stdout=subprocess.DEVNULL, check=True)
    done = subprocess.run([arguments.bench, library, arguments.build, "--rounds", "2", "--groups", "10", "--channels", *CHANNELS],
                          env={**os.environ, "COLLWIRE_CUDA_LAYOUTS": directory}, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, end="")
    # 1: a time is above its limit.
    assert done.returncode in (0, 1) and not done.stderr, done.returncode
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in [[channels] for channels in CHANNELS]]
    assert [row[0] for row in rows] == list(CHANNELS), rows
    for row in rows:
        figures = dict(zip(COLUMNS, row))
        # "low to high", launch, "low to high", with call, "low to high", limit, ratio, ring, capture
        capture_bytes = float(row[len(COLUMNS) + 14])
        assert int(figures["ops"]) >= 2 * int(figures["channels"]), figures
        assert float(figures["traps"]) <= MOST_TRAPS, figures
        assert 0 < capture_bytes <= MOST_BYTES, row


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--keep")
    parser.set_defaults(only_full=False)
    sys.exit(one_machine.main(parser.parse_args(), run))
