# SPDX-License-Identifier: Apache-2.0
"""What a generated job did: reads truth.jsonl of `collwire-trace-gen job` (docs/scale.md)."""

import collections
import json


class Truth:
    def __init__(self, path):
        self.job = self.total = None
        self.nodes, self.ranks, self.comms, self.shapes = {}, {}, {}, {}
        self.traffic, self.operations, self.connections, self.captures = {}, [], [], {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                self._take(json.loads(line))

    def _take(self, row):
        kind = row["kind"]
        if kind in ("job", "total"):
            setattr(self, kind, row)
        elif kind == "operation":
            self.operations.append(row)
        elif kind == "connection":
            self.connections.append(row)
        elif kind == "traffic":
            self.traffic[row["shape"], row["comm"], row["stage"]] = row
        elif kind != "sum":
            key = {"communicator": "comm"}.get(kind, kind)
            tables = {"node": self.nodes, "rank": self.ranks, "communicator": self.comms, "shape": self.shapes, "capture": self.captures}
            if kind == "capture":
                self.captures[row["node"]] = row
            else:
                tables[kind][row[key]] = row

    def host(self, node):
        return self.nodes[node]["host"]

    def realtime_ns(self, node, true_ns):
        """CLOCK_REALTIME of a node at a true time."""
        row = self.nodes[node]
        steps = sum(step["ahead_ns"] for step in row["steps"] if step["from_ns"] <= true_ns)
        return self.job["start_realtime_ns"] + true_ns + row["offset_ns"] + steps + int(true_ns // 1000 * row["drift_ppb"] / 1_000_000)

    def node_of(self, comm, rank):
        return self.comms[comm]["ranks"][rank] // 8

    def sent_between_ranks(self):
        sent = collections.Counter()
        for row in self.connections:
            sent[row["comm"], row["src_rank"], row["dst_rank"]] += row["payload_bytes"]
        return {pair: n for pair, n in sent.items() if n}

    def exchanges(self):
        """Sends of all-to-alls and pipelines: (comm, src, dst) -> operations in order, with their times."""
        sends = collections.defaultdict(list)
        for row in self.operations:
            shape = self.shapes[row["shape"]]
            if shape["what"] == "transfer":
                pair = (row["stage"] + 1, row["stage"]) if shape["backward"] else (row["stage"], row["stage"] + 1)
                sends[(row["comm"], *pair)].append(row)
            elif shape["what"] == "exchange":
                n = self.comms[row["comm"]]["n_ranks"]
                for src in range(n):
                    for dst in range(n):
                        if src != dst:
                            sends[row["comm"], src, dst].append(row)
        return sends
