#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traffic under faults of the fabric: RDMA from node 0 to the other leaf and to a neighbour, and datagrams. Node 0 announces when a fault is due;
the fault ends when node 0's own counters show its effect."""

import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from datagrams import Datagrams
from lab_job import Job, NODE, OUT, announce, local_qpns, poll_until, read_growing

NEIGHBOUR, FAR = 1, 2
# 4.096 us * 2^n, about a second: a cut of 7 s ends the queue pair, and no node is too slow for a second.
TIMEOUT_EXPONENT = "18"
MESSAGE_BYTES = "16384"
# The report joins effects up to 2.5 s apart into one event, and samples counters once a second: the effect of the next fault is its own event.
QUIET_S = 5.0
# Counters of rdma_rxe that grow where frames were lost.
LOST = ("completer_retry_err", "rcvd_seq_err", "out_of_seq_request")


def write_bw(port, address):
    words = ["stdbuf", "-oL", "ib_write_bw", "-d", "rxe0", "-x", "1", "-F", "-p", str(port), "-s", MESSAGE_BYTES, "-t", "4", "-u", TIMEOUT_EXPONENT,
             "-D", "1", "--run_infinitely"]
    return words + ([address] if address else [])


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def rdma_counter(name):
    return int(read(f"/sys/class/infiniband/rxe0/ports/1/hw_counters/{name}"))


def nic():
    return {"carrier_changes": int(read("/sys/class/net/eth0/carrier_changes")), "carrier": int(read("/sys/class/net/eth0/carrier")),
            "link_downed": rdma_counter("link_downed")}


def lost():
    return [rdma_counter(name) for name in LOST]


def is_alive(transfer):
    return transfer.process.poll() is None


def seconds_of_traffic(transfer):
    """ib_write_bw prints a line a second: lines with messages in them."""
    return sum(int(messages) > 0 for messages in re.findall(rf"^ {MESSAGE_BYTES} +(\d+)", read_growing(transfer.log), re.MULTILINE))


def wait_for_traffic(transfers, what, quiet_s=0.0):
    """Until each transfer that is alive went on for two seconds and, at once, nothing was lost for quiet_s."""
    before = {transfer.name: seconds_of_traffic(transfer) for transfer in transfers}
    last, since_s = lost(), time.monotonic()

    def is_flowing():
        nonlocal last, since_s
        now = lost()
        if now != last:
            last, since_s = now, time.monotonic()
        return time.monotonic() - since_s >= quiet_s and all(
            seconds_of_traffic(transfer) >= before[transfer.name] + 2 for transfer in transfers if is_alive(transfer))

    poll_until(is_flowing, f"traffic {what}")


class Driver:
    def __init__(self, transfers):
        self.transfers = transfers
        # name -> seconds since the epoch, by this node's clock
        self.announced = {}
        self.seen = {}

    def announce(self, event):
        self.announced[event] = time.time()
        announce(event)

    def hit(self, start, end):
        """A fault that no host sees, from its announcement until its effect."""
        before = lost()
        self.announce(start)
        poll_until(lambda: lost() != before, f"{start}: its effect")
        self.announce(end)
        wait_for_traffic(self.transfers, f"after {end}", QUIET_S)

    def flap(self):
        before, losses = nic(), lost()
        self.announce("flap")
        poll_until(lambda: nic()["carrier_changes"] > before["carrier_changes"], "the carrier goes off")
        self.seen["carrier off"] = time.time()
        # On some kernels rdma_rxe ends the queue pairs of a port whose carrier goes off.
        poll_until(lambda: lost() != losses or not all(map(is_alive, self.transfers)), "flap: its effect")
        self.announce("flap-over")
        poll_until(lambda: nic()["carrier"] == 1 and "ACTIVE" in read("/sys/class/infiniband/rxe0/ports/1/state"), "the port is active again")
        self.seen["active"] = time.time()
        wait_for_traffic(self.transfers, "after the flap")

    def run(self):
        self.announce("node-cut")
        wait_for_traffic(self.transfers, "before the first fault", QUIET_S)
        self.announce("node-mend")
        self.hit("cut", "mend")
        self.hit("loss", "loss-over")
        self.flap()


def main():
    job = Job()
    result = {"before": nic()}
    datagrams = Datagrams()
    transfers = [job.start("far", FAR, 0, write_bw), job.start("near", NEIGHBOUR, 0, write_bw)]
    if NODE == 0:
        driver = Driver(transfers)
        driver.run()
        result["announced"], result["seen"] = driver.announced, driver.seen
        result["transfers"] = {transfer.name: {"qpns": local_qpns(read_growing(transfer.log)), "alive": is_alive(transfer)} for transfer in transfers}
    job.barrier.wait()
    result["datagrams"] = datagrams.stop()
    for transfer in transfers:
        if transfer.process:
            if not is_alive(transfer):
                print(f"{transfer.name}: exit status {transfer.process.returncode}\n{read_growing(transfer.log)}", flush=True)
            transfer.process.kill()
            transfer.process.wait()
    result["after"] = nic()
    with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(f"node {NODE}: {result}", flush=True)
    job.end()


if __name__ == "__main__":
    main()
