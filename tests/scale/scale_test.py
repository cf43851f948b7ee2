#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report` against the truth of generated jobs: communicators, each operation's bytes on each connection, matrix, queue pairs, tiers, times.

scale_test.py --collwire FILE --trace-gen FILE [--cases CASE,... | all] [--only-full] [--keep DIR]"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

from truth import Truth

SKIPPED = 77
QP_CREATED_NS = 200_000_000
CLOCK_SLACK_NS = 1000
NEAR_HALF = 0.02 # of a time: there both classes are right
ROUNDING_NS = 2 # of times that the generator made from true ones
CASES = {
    "ring": ["--nodes", "2", "--no-small"],
    "trees": ["--nodes", "3", "--buckets", "2"],
    "sharded": ["--nodes", "4", "--sharded", "--tp", "4", "--bucket-kib", "777"],
    "pipeline": ["--nodes", "8", "--tp", "8", "--pp", "4", "--transfer-kib", "300"],
    "experts": ["--nodes", "4", "--ep", "16", "--layers", "1"],
    "all": ["--nodes", "8", "--tp", "4", "--pp", "2", "--ep", "8", "--sharded", "--iterations", "2", "--local-launches"],
    "computed": ["--nodes", "2", "--bytes", "computed"],
    "times": ["--nodes", "2", "--network-times"],
    "pods": ["--nodes", "40", "--tp", "8", "--iterations", "1", "--no-ring-order"],
    "skew": ["--nodes", "4", "--skew", "constant:40", "--network-times", "--no-small"],
    "drift": ["--nodes", "4", "--skew", "drift:50", "--network-times", "--no-small", "--iterations", "4"],
    "hours": ["--nodes", "4", "--skew", "constant:3600000", "--no-small"],
    "late": ["--nodes", "2", "--late", "3:300:1-1", "--slow-link", "1:2:50:2-2", "--network-times", "--iterations", "4"],
    "stopped": ["--nodes", "2", "--die-at", "3.5:11", "--iterations", "4"],
}
CASES.update({damage: ["--nodes", "3", "--tp", "4", "--damage", f"1:{damage}"]
              for damage in ("missing", "truncated", "doubled", "corrupt", "newer-major", "newer-minor")})
FULL_CASES = {
    "ranks256": ["--nodes", "32", "--iterations", "3", "--buckets", "12"],
    "mixed256": ["--nodes", "32", "--tp", "4", "--pp", "4", "--ep", "16", "--sharded", "--iterations", "2"],
    "ranks1024": ["--nodes", "128", "--tp", "8", "--iterations", "2", "--buckets", "8"],
}


class Comparison:
    def __init__(self, truth, report):
        self.truth, self.report, self.faults, self.n = truth, report, [], 0
        self.windows_of_clocks, self.widest_ns = 0, 0
        self.waited, self.transferred, self.unclear = 0, 0, 0
        hashes = {row["hash"]: row["comm"] for row in truth.comms.values()}
        self.comm_of = {row["id"]: hashes.get(row["hash"]) for row in report["communicators"]}
        self.is_exact_clock = all(row["offset_ns"] == 0 and row["drift_ppb"] == 0 for row in truth.nodes.values())
        self.is_whole = all(row["damage"] == "none" for row in truth.captures.values())

    def equal(self, what, found, expected):
        self.n += 1
        if found != expected:
            self.faults.append(f"{what}: {found}, the truth is {expected}")

    def true(self, what, condition):
        self.n += 1
        if not condition:
            self.faults.append(what)

    def run(self):
        self.captures()
        self.communicators()
        self.collectives()
        self.pairs()
        self.matrix()
        self.queue_pairs()
        self.totals()
        self.clocks()
        self.waiting()

    def captures(self):
        records = {os.path.basename(row["path"]): row["records"] for row in self.report["captures"]}
        for row in self.truth.captures.values():
            for name in row["files"]:
                self.equal(f"records of {name}", records.get(name), row["records"])
        for row in self.report["captures"]:
            self.equal(f"end of {row['path']}", row["end"], "complete")
            self.equal(f"unusable records of {row['path']}", row["unusable_records"], 0)

    def communicators(self):
        found = {row["hash"]: row for row in self.report["communicators"]}
        self.equal("hashes", sorted(found), sorted(row["hash"] for row in self.truth.comms.values()))
        for row in self.truth.comms.values():
            comm = found.get(row["hash"])
            if comm is None:
                continue
            self.equal("ranks", (comm["n_ranks"], comm["ranks_seen"], comm["n_nodes"]), (row["n_ranks"], row["n_ranks"], row["nodes"]))
            ranks = [(rank["host"], rank["pid"], rank["device"]) for rank in comm["ranks"]]
            expected = [self.truth.ranks[rank] for rank in row["ranks"]]
            self.equal(f"ranks of {row['hash']}", ranks, [(self.truth.host(rank["node"]), rank["pid"], rank["gpu"]) for rank in expected])

    def of_operation(self, what, found, row, traffic, is_hung):
        if is_hung:
            return
        for tier in ("leaf", "spine"):
            bytes_of_tier = found["tiers"].get(tier, {}).get("tx_payload_bytes", 0)
            self.equal(f"{what}: {tier}", bytes_of_tier, traffic[f"{tier}_bytes"])
        self.equal(f"{what}: payload", found["tx_payload_bytes"], traffic["payload_bytes"])
        self.equal(f"{what}: data", found["data_bytes"], traffic["data_bytes"])
        self.equal(f"{what}: partial", found["partial"], False)
        self.times(what, found, row)

    def times(self, what, found, row):
        """Of the slowest rank, by its host's clock; between hosts only where the clocks agree."""
        if found["end_known"] is None:
            return
        ranks = self.truth.comms[row["comm"]]["ranks"]
        shape = self.truth.shapes[row["shape"]]
        of = range(len(ranks)) if shape["what"] != "transfer" else [row["stage"], row["stage"] + 1]
        ends = [self.truth.realtime_ns(ranks[rank] // 8, row["end_ns"]) for rank in of]
        if found["end_known"] == "measured":
            self.true(f"{what}: end {found['end_realtime_ns']}, the truth is {min(ends)} to {max(ends)}",
                      min(ends) - 1000 <= found["end_realtime_ns"] <= max(ends) + 1000)
        elif self.is_exact_clock:
            self.true(f"{what}: end after {found['end_after_realtime_ns']} and before {found['end_before_realtime_ns']}, the truth is {ends[0]}",
                      found["end_after_realtime_ns"] <= ends[0] + 1000 and ends[0] <= found["end_before_realtime_ns"] + 1000)

    def called(self, row, rank_index, rank):
        after_ns = row["after_first_ns"][rank_index]
        return None if after_ns is None else self.truth.realtime_ns(self.truth.node_of(row["comm"], rank), row["first_ns"] + after_ns)

    def collectives(self):
        expected = {(row["comm"], row["seq"]): row for row in self.truth.operations if self.truth.shapes[row["shape"]]["what"] == "collective"}
        found = {(self.comm_of[row["comm"]], row["seq"]): row for row in self.report["collectives"]}
        self.equal("collectives", len(self.report["collectives"]), len(expected))
        self.equal("collectives with a number", sorted(found), sorted(expected))
        for key, row in expected.items():
            if key not in found:
                continue
            op, shape, traffic = found[key], self.truth.shapes[row["shape"]], self.truth.traffic[row["shape"], row["comm"], 0]
            what = f"comm {key[0]} seq {key[1]}"
            is_hung = row["end_ns"] is None
            is_local = self.truth.comms[key[0]]["nodes"] == 1
            self.equal(f"{what}: operation", (op["op"], op["size_bytes"]), (shape["op"], shape["size_bytes"]))
            self.equal(f"{what}: ranks", op["ranks"], sum(after is not None for after in row["after_first_ns"]))
            if not is_local or self.truth.job["local_launches"]:
                self.equal(f"{what}: algorithm", (op["algorithm"], op["protocol"]), (shape["algorithm"], shape["protocol"]))
                if traffic["local_bytes"] is not None and not is_hung and "local" in op:
                    self.equal(f"{what}: inside nodes", op["local_payload_bytes"] or 0, traffic["local_bytes"])
            called = [self.called(row, rank, rank) for rank in range(len(row["after_first_ns"]))]
            self.equal(f"{what}: called", op["called_realtime_ns"], min(at for at in called if at is not None))
            calls = {call["rank"]: call["called_realtime_ns"] for call in op["calls"]}
            self.equal(f"{what}: calls", calls, {rank: at for rank, at in enumerate(called) if at is not None})
            self.of_operation(what, op, row, traffic, is_hung)
            if is_hung:
                self.true(f"{what}: hangs, and is partial", op["partial"])
                if self.truth.job["bytes"] == "posts":
                    self.equal(f"{what}: hangs, payload", op["tx_payload_bytes"] or 0, 0)
                continue
            if traffic["edges"]:
                self.equal(f"{what}: certainty", op["rung"], "exact")
            parts = sorted((part["rank"], part["peer_rank"], part["channel"], part["payload_bytes"]) for part in op["parts"] if part["direction"] == "send")
            self.equal(f"{what}: connections", parts, sorted(tuple(edge[:4]) for edge in traffic["edges"]))

    def pairs(self):
        found = {(self.comm_of[row["comm"]], row["src_rank"], row["dst_rank"], row["ordinal"]): row for row in self.report["p2p"]}
        expected = {(*pair, ordinal): row for pair, rows in self.truth.exchanges().items() for ordinal, row in enumerate(rows)}
        self.equal("sends", len(self.report["p2p"]), len(expected))
        self.equal("sends with a number", sorted(found), sorted(expected))
        edges = {}
        for key, row in expected.items():
            if key not in found:
                continue
            traffic = self.truth.traffic[row["shape"], row["comm"], row["stage"]]
            if id(traffic) not in edges:
                by_pair = edges[id(traffic)] = collections.defaultdict(list)
                for edge in traffic["edges"]:
                    by_pair[edge[0], edge[1]].append(tuple(edge))
            own = edges[id(traffic)][key[1], key[2]]
            op, what = found[key], f"comm {key[0]} send {key[1]} to {key[2]} number {key[3]}"
            self.equal(f"{what}: size", op["size_bytes"], self.truth.shapes[row["shape"]]["size_bytes"])
            if row["end_ns"] is None:
                continue
            self.equal(f"{what}: payload", op["tx_payload_bytes"] or 0, sum(edge[3] for edge in own))
            self.equal(f"{what}: partial", op["partial"], False)
            parts = sorted((part["rank"], part["peer_rank"], part["channel"], part["payload_bytes"]) for part in op["parts"] if part["direction"] == "send")
            self.equal(f"{what}: connections", parts, sorted(edge[:4] for edge in own))
            if own:
                self.true(f"{what}: certainty {op['rung']}", op["rung"] == "exact" or (op["rung"] == "inferred" and self.are_alike(own)))
                self.times(what, op, row)

    @staticmethod
    def are_alike(edges):
        """Parts of a transfer with as many messages and other bytes: NCCL's operations do not show which is which."""
        return len({edge[3] for edge in edges}) > 1 and len({edge[4] for edge in edges}) == 1

    def matrix(self):
        found = {(self.comm_of[row["comm"]], row["src_rank"], row["dst_rank"]): row["payload_bytes"] for row in self.report["matrix"] if row["payload_bytes"]}
        self.equal("matrix", sum(found.values()), sum(self.truth.sent_between_ranks().values()))
        if found != self.truth.sent_between_ranks():
            self.faults.append("matrix: rows differ from the truth")

    def queue_pairs(self):
        field = "tx_payload_bytes" if self.truth.job["bytes"] == "posts" else "derived_tx_payload_bytes"
        found = {(row["host"], row["device"], row["qpn"]): row for row in self.report["qps"]}
        self.equal("queue pairs", len(found), 2 * len(self.truth.connections))
        for row in self.truth.connections:
            qp = found[self.truth.host(row["src_node"]), f"mlx5_{row['src_nic']}", row["src_qpn"]]
            what = f"{qp['host']} {qp['device']} QP {qp['qpn']}"
            if row["payload_bytes"] or qp[field] is not None:
                self.equal(what, qp[field] or 0, row["payload_bytes"])
            self.equal(f"{what}: tier", (qp["tier"], qp["pairing"]), (row["tier"], "paired"))
            if row["payload_bytes"]:
                connection = (self.comm_of.get(qp["comm"]), qp["rank"], qp["peer_rank"], qp["channel"])
                self.equal(f"{what}: connection", connection, (row["comm"], row["src_rank"], row["dst_rank"], row["channel"]))

    def totals(self):
        sent = self.truth.total["leaf_bytes"] + self.truth.total["spine_bytes"]
        is_hung = any(row["end_ns"] is None for row in self.truth.operations)
        identity = self.report["identity"]
        self.equal("bytes in process", identity["process"], 0)
        for kind in ("bootstrap", "proxy", "network_setup"):
            n = self.truth.total[f"{kind}_sockets"]
            found = self.report["control"][kind]
            self.equal(f"sockets of {kind}", (found["sockets"], found["payload_bytes"]), (n, n * self.truth.total["bytes_of_socket"]))
        if self.truth.job["bytes"] == "computed" and is_hung:
            return
        inferred = sum(row["tx_payload_bytes"] or 0 for row in self.report["p2p"] if row["rung"] == "inferred")
        self.equal("bytes by certainty", (identity["exact"], identity["inferred"]), (sent - inferred, inferred))
        for tier in ("leaf", "spine"):
            of_comms = sum((comm["tiers"].get(tier) or {}).get("tx_payload_bytes") or 0 for comm in self.report["communicators"])
            if not is_hung:
                self.equal(f"operations, {tier}", of_comms, self.truth.total[f"{tier}_bytes"])

    def waiting(self):
        """Of collectives whose end is known: the time before and after the last rank's call. A class is claimed only where it is true."""
        truth, spreads = collections.defaultdict(collections.Counter), collections.defaultdict(list)
        for row in self.truth.operations:
            shape = self.truth.shapes[row["shape"]]
            if shape["what"] != "collective" or None in row["after_first_ns"]:
                continue
            key, spread_ns = (row["comm"], shape["op"], shape["size_bytes"]), max(row["after_first_ns"])
            spreads[key].append(spread_ns)
            of = truth[key]
            of["all"] += 1
            if row["end_ns"] is not None:
                time_ns = row["end_ns"] - row["first_ns"]
                of["waited"] += spread_ns * 2 >= time_ns * (1 - NEAR_HALF)
                of["transferred"] += spread_ns * 2 < time_ns * (1 + NEAR_HALF)
                of[row["after_first_ns"].index(spread_ns)] += 1
        found = collections.defaultdict(collections.Counter)
        for row in self.report["waiting"]:
            key = (self.comm_of[row["comm"]], row["op"], row["size_bytes"])
            found[key].update({name: row[name] for name in ("waited", "transferred", "unclear")})
            for last in row["last_ranks"]:
                self.true(f"waiting: {key}: rank {last['rank']} was the last one {last['operations']} times", last["operations"] <= truth[key][last["rank"]])
            in_order, of = sorted(spreads[key]), row["spread"]
            if of["n"] == len(in_order):
                for percent in (50, 95):
                    at = in_order[-(-len(in_order) * percent // 100) - 1]
                    self.true(f"waiting: {key}: the spread is {of}, the truth of {percent} % is {at}",
                              of[f"least_p{percent}_ns"] - CLOCK_SLACK_NS <= at <= of[f"most_p{percent}_ns"] + CLOCK_SLACK_NS)
        for key, of in found.items():
            self.true(f"waiting: {key}: {of}, the truth is {truth[key]}",
                      of["waited"] <= truth[key]["waited"] and of["transferred"] <= truth[key]["transferred"] and
                      of["waited"] + of["transferred"] + of["unclear"] <= truth[key]["all"])
            self.waited += of["waited"]
            self.transferred += of["transferred"]
            self.unclear += of["unclear"]
        if self.is_exact_clock and self.is_whole:
            self.equal("waiting: collectives of all ranks", self.waited + self.transferred + self.unclear, sum(of["all"] for of in truth.values()))

    def clocks(self):
        """A difference of clocks comes from the ends of connections: it is that of the time when they were made, the same at both ends here."""
        nodes = {row["host"]: node for node, row in self.truth.nodes.items()}
        self.bounds_of_clocks({host: self.truth.nodes[node] for host, node in nodes.items()})
        self.true("differences of clocks", self.report["clock_differences"] or self.is_exact_clock)
        for row in self.report["clock_differences"]:
            at_ns = [self.truth.realtime_ns(nodes[row[host]], QP_CREATED_NS) for host in ("host_a", "host_b")]
            self.true(f"clock of {row['host_b']} less {row['host_a']}: {row['b_minus_a_ns']}, the truth is {at_ns[1] - at_ns[0]}",
                      abs(at_ns[1] - at_ns[0] - row["b_minus_a_ns"]) <= row["spread_ns"] + CLOCK_SLACK_NS)


    def bounds_of_clocks(self, nodes):
        """The truth is inside the bounds of each node's clock at each moment that the report has."""
        self.equal("contradictions of clocks", self.report["clock_contradictions"], [])
        calibrated = [clock for clock in self.report["clocks"] if clock["calibration"] != "none"]
        self.true("calibrated clocks", len(calibrated) == len(nodes) or not self.is_whole)
        for clock in calibrated:
            self.true(f"{clock['host']} is {clock['calibration']}", clock["calibration"] in ("reference", "bounded"))
            for window in clock["windows"]:
                true_ns = true_time_ns(nodes[clock["reference"]], window["reference_ns"])
                shown_ns = monotonic_ns(nodes[clock["host"]], true_ns)
                self.true(f"{clock['host']}: its clock shows {shown_ns}, the bounds are {window['least_ns']} to {window['most_ns']}",
                          window["least_ns"] - ROUNDING_NS <= shown_ns <= window["most_ns"] + ROUNDING_NS)
                drift_ppb = nodes[clock["host"]]["drift_ppb"] - nodes[clock["reference"]]["drift_ppb"]
                self.true(f"{clock['host']}: drifts by {drift_ppb} ppb, the bounds are {clock['drift_least_ppb']} to {clock['drift_most_ppb']}",
                          clock["drift_least_ppb"] is None or clock["drift_least_ppb"] - 1 <= drift_ppb <= clock["drift_most_ppb"] + 1)
                self.windows_of_clocks += 1
                self.widest_ns = max(self.widest_ns, window["most_ns"] - window["least_ns"])


def monotonic_ns(node, true_ns):
    return node["boot_monotonic_ns"] + true_ns + int(true_ns // 1000 * node["drift_ppb"] / 1_000_000)


def true_time_ns(node, shown_ns):
    """When a node's monotonic clock shows that."""
    elapsed_ns = shown_ns - node["boot_monotonic_ns"]
    return round(elapsed_ns / (1 + node["drift_ppb"] / 1e9))


class DamagedComparison(Comparison):
    """Of a job with one node's capture damaged: what the others sent, and where the damage is."""

    def run(self):
        node, row = next((node, row) for node, row in self.truth.captures.items() if row["damage"] != "none")
        ends = {os.path.basename(capture["path"]): capture for capture in self.report["captures"]}
        if row["damage"] == "missing":
            self.equal("captures", len(ends), len(self.truth.nodes) - 1)
        else:
            capture = ends[row["files"][0]]
            expected = ("unreadable", None) if row["damage"] == "newer-major" else ("damaged", row["good_bytes"])
            self.equal(row["damage"], (capture["end"], capture["damaged_at_bytes"]), expected)
            self.true("records up to the damage", capture["records"] < row["records"])
        if row["damage"] in ("missing", "newer-major"):
            self.without(node)

    def without(self, node):
        found = {(self.comm_of[row["comm"]], row["seq"]): row for row in self.report["collectives"]}
        for row in self.truth.operations:
            comm, op = self.truth.comms[row["comm"]], found.get((row["comm"], row["seq"]))
            captured = [rank for rank, of in enumerate(comm["ranks"]) if of // 8 != node]
            if self.truth.shapes[row["shape"]]["what"] != "collective" or not captured:
                continue
            what = f"comm {row['comm']} seq {row['seq']}"
            self.true(f"{what}: is there", op is not None)
            if op is None:
                continue
            self.equal(f"{what}: ranks", op["ranks"], len(captured))
            self.equal(f"{what}: partial", op["partial"], len(captured) < comm["n_ranks"])
            edges = self.truth.traffic[row["shape"], row["comm"], 0]["edges"]
            sent = sum(edge[3] for edge in edges if self.truth.node_of(row["comm"], edge[0]) != node)
            self.equal(f"{what}: payload", op["tx_payload_bytes"] or 0, sent)
        hosts = {row["name"] for row in self.report["hosts"]}
        self.equal("hosts", hosts, {row["host"] for number, row in self.truth.nodes.items() if number != node})


def run(arguments, directory, options):
    made = subprocess.run([arguments.trace_gen, "job", *options, "--out", directory], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    out = f"{directory}/report.json"
    words = [arguments.collwire, "report", directory, "--topology", f"{directory}/topology.json", "--json", out, "--detail"]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    damage = options[options.index("--damage") + 1].split(":")[1] if "--damage" in options else None
    assert done.returncode == (1 if damage == "newer-major" else 0), (words, done.returncode, done.stderr)
    with open(out, encoding="utf-8") as file:
        kind = Comparison if damage in (None, "doubled", "newer-minor") else DamagedComparison
        comparison = kind(Truth(f"{directory}/truth.jsonl"), json.load(file))
    comparison.run()
    return comparison


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("--cases", default="")
    parser.add_argument("--only-full", action="store_true", help="the large cases, with COLLWIRE_FULL=1")
    parser.add_argument("--keep", help="a directory for the captures")
    arguments = parser.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: for tools/test --full")
        return SKIPPED
    cases = FULL_CASES if arguments.only_full else CASES
    if arguments.cases:
        cases = {name: {**CASES, **FULL_CASES}[name] for name in arguments.cases.split(",")}
    has_failed = False
    for name, options in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            comparison = run(arguments, os.path.join(arguments.keep or directory, name), options)
        print(f"{name}: {comparison.n} comparisons, {len(comparison.faults)} differ; {comparison.windows_of_clocks} windows of clocks, "
              f"bounds {comparison.widest_ns / 1e6:.3f} ms wide at most; {comparison.waited} waited, {comparison.transferred} transferred, "
              f"{comparison.unclear} unclear")
        for fault in comparison.faults[:10]:
            print(f"  {fault[:400]}")
        has_failed = has_failed or bool(comparison.faults)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
