#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of ROOT_TESTS (paths, separated by colons) on node 0 and leaves the results of their tests."""

import glob
import os
import subprocess

from lab_job import NODE, OUT


def use_one_cpu():
    """Probes are placed all the time, which with several emulated CPUs may stop a node (docs/lab.md)."""
    for online in glob.glob("/sys/devices/system/cpu/cpu[1-9]*/online"):
        with open(online, "w", encoding="ascii") as file:
            file.write("0")


def main():
    if NODE != 0:
        return
    use_one_cpu()
    for program in os.environ["ROOT_TESTS"].split(":"):
        results = os.path.join(OUT, f"{os.path.basename(program)}.json")
        done = subprocess.run([program, f"--gtest_output=json:{results}", "--gtest_brief=1"], stdin=subprocess.DEVNULL, check=False)
        print(f"{program}: exit status {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
