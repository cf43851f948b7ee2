#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of perftest and rdma-core between the nodes, one after the other. BENCHMARKS=rc leaves out what cannot bear loss."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, NODES, cm_listens, local_qpns

RELIABLE_ONLY = os.environ.get("BENCHMARKS", "all") == "rc"


def perftest(program, size, iterations, *options):
    def command(port, address):
        words = [program, "-d", "rxe0", "-x", "1", "-F", "-p", str(port), "-s", str(size), "-n", str(iterations), *options]
        return words + ([address] if address else [])
    return command


def run(job, name, server, client, program, size, iterations, *options):
    output = job.pair(name, server, client, perftest(program, size, iterations, *options))
    if output is None:
        return
    carried = size * iterations
    for qpn in local_qpns(output):
        if program == "ib_read_bw":
            figures = {"rx_payload_bytes": carried} if NODE == client else {"tx_payload_bytes": carried}
        elif program == "ib_atomic_bw":
            figures = {"rx_payload_bytes": 8 * iterations} if NODE == client else {"tx_payload_bytes": 8 * iterations}
        else:
            figures = {"tx_payload_bytes": carried} if NODE == client else {"rx_payload_bytes": carried}
        job.expect(name, qpn, **figures)


def rping(port, address):
    if address:
        return ["rping", "-c", "-a", address, "-p", str(port), "-C", "20", "-S", "3000", "-v"]
    return ["rping", "-s", "-p", str(port), "-C", "20", "-S", "3000"]


def main():
    job = Job()
    far = NODES - 1 if NODES > 2 else 1
    run(job, "write", 1, 0, "ib_write_bw", 65536, 40)
    run(job, "write-odd", far, 0, "ib_write_bw", 4097, 60)
    run(job, "send", 0, 1, "ib_send_bw", 10001, 60)
    run(job, "read", far, 0, "ib_read_bw", 20000, 40)
    run(job, "atomic", 0, far, "ib_atomic_bw", 8, 50)
    run(job, "small", 1, 0, "ib_write_bw", 1, 100)
    if not RELIABLE_ONLY:
        run(job, "uc", 1, 0, "ib_send_bw", 8192, 40, "-c", "UC")
        run(job, "ud", 0, far, "ib_send_bw", 1000, 100, "-c", "UD")
        job.pair("rping", 1, 0, rping, cm_listens)
    job.end()


if __name__ == "__main__":
    main()
