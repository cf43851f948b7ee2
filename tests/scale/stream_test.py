#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stream correlator's operations against the truth of generated jobs: each collective with its arguments, calls, first and last rank, and bytes; sends of
pairs by count and bytes.

stream_test.py --stream FILE --trace-gen FILE [--only-full] [--case NAME]"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

from scale_test import CASES, FULL_CASES, SKIPPED
from truth import Truth

LACKS_RANKS, LACKS_BYTES, HAS_BOUND, LACKS_LAUNCH = 1, 2, 4, 8


class Comparison:
    def __init__(self, truth, rows):
        self.truth, self.faults, self.n = truth, [], 0
        comms = {row["hash"]: row["comm"] for row in truth.comms.values()}
        self.rows = [dict(row, comm=comms.get(row["hash"])) for row in rows]
        self.damaged = {row["node"] for row in truth.captures.values() if row["damage"] not in ("none", "doubled")}
        self.damages = {row["damage"] for row in truth.captures.values()} - {"none"}
        self.has_equal_clocks = all(row["offset_ns"] == 0 and row["drift_ppb"] == 0 and not row["steps"] for row in truth.nodes.values())

    def equal(self, what, found, expected):
        self.n += 1
        if found != expected:
            self.faults.append(f"{what}: {found}, the truth is {expected}")

    def is_seen(self, comm):
        """Whether the captures of all its ranks are whole."""
        return not any(self.truth.node_of(comm, rank) in self.damaged for rank in range(self.truth.comms[comm]["n_ranks"]))

    def collectives(self):
        expected = {(row["comm"], row["seq"]): row for row in self.truth.operations if self.truth.shapes[row["shape"]]["what"] == "collective"}
        found = collections.defaultdict(list)
        for row in self.rows:
            if row["source"] < 0:
                found[row["comm"], row["number"]].append(row)
        self.equal("collectives of no communicator or number of the job", sorted(set(found) - set(expected)), [])
        self.equal("collectives twice", [key for key, rows in found.items() if len(rows) > 1], [])
        for key, row in expected.items():
            what = f"comm {key[0]} number {key[1]}"
            if not self.is_seen(key[0]):
                if self.damages == {"missing"}:
                    there = [rank for rank, after in enumerate(row["after_first_ns"])
                             if after is not None and self.truth.node_of(key[0], rank) not in self.damaged]
                    self.equal(f"{what}: calls of the captures that are there", [op["calls"] for op in found[key]], [len(there)] if there else [])
                continue
            if key not in found:
                self.faults.append(f"{what} is missing")
                continue
            [op], shape, traffic = found[key], self.truth.shapes[row["shape"]], self.truth.traffic[row["shape"], row["comm"], 0]
            called = {rank: after for rank, after in enumerate(row["after_first_ns"]) if after is not None}
            self.equal(f"{what}: operation", (op["op"], op["size_bytes"]), (shape["op"], shape["size_bytes"]))
            self.equal(f"{what}: calls", op["calls"], len(called))
            self.equal(f"{what}: lacks ranks", bool(op["lacks"] & LACKS_RANKS), len(called) < self.truth.comms[key[0]]["n_ranks"])
            first, last = min(called, key=called.get), max(called, key=called.get)
            if self.has_equal_clocks:
                self.equal(f"{what}: first call", op["first_call_ns"], self.truth.realtime_ns(0, row["first_ns"] + called[first]))
                self.equal(f"{what}: last rank", called[op["last_rank"]], called[last])
            if traffic["edges"]:
                self.equal(f"{what}: algorithm", (op["algorithm"], op["protocol"]), (shape["algorithm"], shape["protocol"]))
            if row["end_ns"] is None and len(called) < self.truth.comms[key[0]]["n_ranks"]:
                continue # the ranks that called have launched, the others not
            self.equal(f"{what}: bytes", (op["payload_bytes"], op["data_bytes"]), (traffic["payload_bytes"], traffic["data_bytes"]))
            self.equal(f"{what}: lacks", op["lacks"] & (LACKS_BYTES | HAS_BOUND), 0)

    def transfers(self):
        n_found, bytes_found = collections.Counter(), collections.Counter()
        for row in self.rows:
            if row["source"] >= 0 and row["source"] != row["destination"]:
                pair = row["comm"], row["source"], row["destination"]
                n_found[pair] += 1
                bytes_found[row["comm"]] += row["payload_bytes"] if row["calls"] == 2 else 0
        for (comm, source, destination), sends in self.truth.exchanges().items():
            if not self.is_seen(comm):
                continue
            self.equal(f"comm {comm}: transfers {source} to {destination}", n_found[comm, source, destination], len(sends))
        if self.truth.job["die_at_ns"] if "die_at_ns" in self.truth.job else any(row["end_ns"] is None for row in self.truth.operations):
            return
        expected = collections.Counter()
        for row in self.truth.operations:
            if self.truth.shapes[row["shape"]]["what"] != "collective":
                expected[row["comm"]] += self.truth.traffic[row["shape"], row["comm"], row["stage"] or 0]["payload_bytes"]
        for comm, n in expected.items():
            if self.is_seen(comm):
                self.equal(f"comm {comm}: bytes of transfers", bytes_found[comm], n)

    def run(self):
        self.collectives()
        self.transfers()


def check(arguments, name, options):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([arguments.trace_gen, "job", *options, "--out", directory], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([arguments.stream, "--rows", directory], capture_output=True, text=True, check=True)
        truth = Truth(os.path.join(directory, "truth.jsonl"))
        comparison = Comparison(truth, [json.loads(line) for line in done.stdout.splitlines()])
        comparison.run()
        print(f"{name}: {len(comparison.rows)} operations, {comparison.n} figures, {len(comparison.faults)} different", flush=True)
        return comparison.faults


HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# Hosts whose clocks are far apart, or are set: docs/stream.md, Reading order. Jobs are longer than the horizon.
APART = {
    "hour-ahead": ["--nodes", "4", "--iterations", "40", "--clock", f"1:{HOUR_MS}"],
    "days-behind": ["--nodes", "4", "--iterations", "40", "--clock", f"2:{-2 * DAY_MS}"],
    "stepping": ["--nodes", "4", "--iterations", "80", "--clock", "1:-90000:45"],
    "random-hours": ["--nodes", "16", "--tp", "8", "--pp", "4", "--iterations", "10", "--skew", f"constant:{12 * HOUR_MS}"],
    "hours-and-late": ["--nodes", "4", "--iterations", "40", "--clock", f"1:{HOUR_MS}", "--clock", f"3:{-HOUR_MS}", "--late", "9:20000:10-10"],
    "hours-and-missing": ["--nodes", "4", "--iterations", "40", "--skew", f"constant:{HOUR_MS}", "--damage", "2:missing"],
    "hours-and-dead": ["--nodes", "4", "--iterations", "60", "--skew", f"constant:{HOUR_MS}", "--die-at", "90:11"],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stream", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    parser.add_argument("--case")
    arguments = parser.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skipped: runs with COLLWIRE_FULL=1")
        return SKIPPED
    faults = []
    for name, options in (FULL_CASES if arguments.only_full else CASES | APART).items():
        if arguments.case in (None, name):
            faults += [f"{name}: {fault}" for fault in check(arguments, name, options)]
    assert not faults, "\n".join(faults[:20])
    return 0


if __name__ == "__main__":
    sys.exit(main())
