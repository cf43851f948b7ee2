#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stream correlator beside the one that reads whole recordings, on recordings of official NCCL.

both_cores_test.py --collwire FILE --stream FILE DIRECTORY..."""

import argparse
import json
import subprocess
import sys

import both_cores


def check(arguments, path):
    done = subprocess.run([arguments.collwire, "report", path, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 5), f"{path}: {done.returncode} {done.stderr}"
    line, faults = both_cores.compare(json.loads(done.stdout), both_cores.rows_of(arguments.stream, [path]))
    print(f"{path}: {line}", flush=True)
    return [f"{path}: {fault}" for fault in faults]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("captures", nargs="+")
    arguments = parser.parse_args()
    faults = [fault for path in arguments.captures for fault in check(arguments, path)]
    assert not faults, "\n".join(faults[:30])


if __name__ == "__main__":
    sys.exit(main())
