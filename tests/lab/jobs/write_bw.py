#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Node 0 writes to node 1 and then to node 2. Node 3 only watches."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, perftest


def main():
    job = Job()
    for server in (1, 2):
        job.pair(f"write-{server}", server, 0, perftest("ib_write_bw", 65536, 100))
    job.end()


if __name__ == "__main__":
    main()
