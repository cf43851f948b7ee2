#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of ROOT_TESTS (paths, separated by colons) on node 0 and leaves the results of their tests."""

import os
import subprocess

from lab_job import NODE, OUT


def main():
    if NODE != 0:
        return
    for program in os.environ["ROOT_TESTS"].split(":"):
        results = os.path.join(OUT, f"{os.path.basename(program)}.json")
        done = subprocess.run([program, f"--gtest_output=json:{results}", "--gtest_brief=1"], stdin=subprocess.DEVNULL, check=False)
        print(f"{program}: exit status {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
