#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traffic that lasts while the lab cuts an uplink and flaps a port: from node 0 to the other leaf, and to a neighbour on its own leaf."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, OUT, local_qpns

NEIGHBOUR, FAR = 1, 2
# Of 4.096 us * 2^n, about a second: no fault outlasts seven of them, and no node is too slow for one.
TIMEOUT_EXPONENT = "18"


def write_bw(port, address):
    words = ["ib_write_bw", "-d", "rxe0", "-x", "1", "-F", "-p", str(port), "-s", "16384", "-u", TIMEOUT_EXPONENT,
             "-D", os.environ["TRAFFIC_S"]]
    return words + ([address] if address else [])


def main():
    job = Job()
    transfers = [job.start("far", FAR, 0, write_bw), job.start("near", NEIGHBOUR, 0, write_bw)]
    # On some kernels rdma_rxe ends the queue pairs of a port whose carrier goes off.
    outputs = {transfer.name: job.finish(transfer, (0, 1)) for transfer in transfers}
    for transfer in transfers:
        if transfer.process and transfer.process.returncode:
            print(outputs[transfer.name], flush=True)
    result = {transfer.name: {"qpns": local_qpns(outputs[transfer.name]), "status": transfer.process.returncode}
              for transfer in transfers if transfer.process}
    with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(f"node {NODE}: {result}", flush=True)
    job.end()


if __name__ == "__main__":
    main()
