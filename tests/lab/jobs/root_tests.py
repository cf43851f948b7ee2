#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of ROOT_TESTS (paths, separated by colons), each node a part of their tests, and leaves the results of each."""

import os
import subprocess

from lab_job import NODE, NODES, OUT


def main():
    part = {**os.environ, "GTEST_TOTAL_SHARDS": str(NODES), "GTEST_SHARD_INDEX": str(NODE)}
    for program in os.environ["ROOT_TESTS"].split(":"):
        results = os.path.join(OUT, f"{os.path.basename(program)}.json")
        done = subprocess.run([program, f"--gtest_output=json:{results}", "--gtest_brief=1"], stdin=subprocess.DEVNULL, env=part, check=False)
        print(f"{program}: exit status {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
