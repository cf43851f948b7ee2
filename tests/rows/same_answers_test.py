#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report` gives the same numbers as text, as JSON and as an SQLite file: totals by tier and by process, communicators, operations, queue pairs,
ports, sockets, pairs of ranks and hosts, losses. The captures: those of earlier versions, of a GPU, the scenarios of the golden reports, a generated job.

same_answers_test.py --collwire FILE [--golden-captures FILE] [--trace-gen FILE]"""

import argparse
import collections
import glob
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from report_text import human, lines_of, table

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LOSS = 5
arguments = argparse.Namespace()
# Field of the JSON: column. The others have equal names.
OF_OPERATION = {"rung": "certainty", "source": "byte_source", "count": "elements", "partial": "is_partial", "truncated": "is_truncated",
                "captured": "is_captured", "launched": "is_launched", "begin_realtime_ns": "first_launch_realtime_ns",
                "launched_realtime_ns": "last_launch_realtime_ns", "local": "local_state", "ordinal": "seq", "ordinal_base": "seq_base",
                "ranks": "ranks_called"}
NOT_IN_OPERATION = {"tiers", "calls", "parts", "local_parts", "send_seen", "recv_seen", "local_not_modelled"}
QP_FIELDS = ["host", "device", "port", "qpn", "type", "pid", "owner", "remote_host", "remote_qpn", "pairing", "tier", "role", "comm", "rank", "peer_rank",
             "channel", "tx_payload_bytes", "rx_payload_bytes", "tx_wire_bytes", "rx_wire_bytes", "retransmitted_wire_bytes", "tx_response_wire_bytes",
             "tx_ack_wire_bytes", "posted_tx_payload_bytes", "derived_tx_payload_bytes", "path_mtu_bytes", "state"]
PORT_FIELDS = ["host", "device", "port", "netdev", "link_layer", "state", "rate_mbps", "switch_port", "rail", "tx_wire_bytes", "rx_wire_bytes",
               "explained_tx_bytes", "explained_rx_bytes", "uncertainty_bytes", "self_tx_wire_bytes", "tcp_tx_payload_bytes", "tcp_rx_payload_bytes",
               "counter_resets", "qps_without_bytes"]
SOCKET_FIELDS = ["host", "pid", "local", "remote", "remote_host", "netdev", "role", "comm", "rank", "peer_rank", "channel", "tier", "tx_payload_bytes",
                 "rx_payload_bytes", "retransmitted_bytes", "rtt_us"]
RANK_FIELDS = ["rank", "host", "pid", "from_creation", "seq_base", "calls", "failed_calls", "launches"]
PROCESS_FIELDS = ["host", "pid", "cmdline", "uid", "slurm_job", "slurm_step", "pod_uid", "container_id", "qps", "qps_without_bytes", "tx_wire_bytes",
                  "rx_wire_bytes", "tx_payload_bytes", "rx_payload_bytes", "derived_tx_payload_bytes"]
CAPTURE_FIELDS = ["path", "host", "session", "segment", "end", "message", "damaged_at_bytes", "records", "unknown_records", "unusable_records"]
EVENT_FIELDS = ["realtime_ns", "host", "device", "port", "netdev", "qpn", "pid", "kind"]
ERROR_FIELDS = ["realtime_ns", "after_realtime_ns", "host", "pid", "kind", "comm", "rank", "peer_rank", "result"]


def if_any(word):
    return None if word == "none" else word


def total(values):
    """None: no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def percentile(samples, percent):
    """The lowest sample that so many percent of all are not above."""
    return next(sample for sample in sorted(samples) if sum(other <= sample for other in samples) * 100 >= percent * len(samples))


class Outputs:
    def __init__(self, folder, paths, topology):
        json_path, sqlite_path = os.path.join(folder, "report.json"), os.path.join(folder, "report.sqlite")
        done = subprocess.run([arguments.collwire, "report", *paths, "--json", json_path, "--sqlite", sqlite_path, "--detail", "--rows", "1000000",
                               *(["--topology", topology] if topology else [])], env={**os.environ, "COLUMNS": "1000"}, capture_output=True, text=True,
                              check=False)
        assert done.returncode in (0, LOSS), (paths, done.returncode, done.stderr)
        self.text = done.stdout
        with open(json_path, encoding="utf-8") as file:
            self.json = json.load(file)
        self.database = sqlite3.connect(sqlite_path)
        self.database.row_factory = sqlite3.Row

    def rows(self, select):
        return [dict(row) for row in self.database.execute(select)]

    def columns(self, name, columns):
        return [tuple(row[column] for column in columns) for row in self.rows(f'SELECT * FROM "{name}"')]


class Comparison:
    """Of one case. `n`: comparisons of numbers."""

    def __init__(self, test, outputs):
        self.test, self.outputs, self.json, self.text, self.n = test, outputs, outputs.json, outputs.text, 0

    def equal(self, found, expected, what):
        self.n += 1
        self.test.assertEqual(found, expected, what)

    def same_rows(self, name, fields, elements, renamed=()):
        """All elements of an array of the JSON, in its order, in the table."""
        renamed = dict(renamed)
        self.equal(self.outputs.columns(name, [renamed.get(field, field) for field in fields]),
                   [tuple(element.get(field) for field in fields) for element in elements], name)

    def run(self):
        self.recordings()
        self.tiers()
        self.processes()
        self.hosts()
        self.communicators()
        self.operations()
        self.operation_tiers()
        self.operation_ranks()
        self.waiting()
        self.queue_pairs()
        self.ports_and_sockets()
        self.troubles()
        return self.n

    def recordings(self):
        self.same_rows("captures", CAPTURE_FIELDS, self.json["captures"])
        self.same_rows("losses", ["host", "class", "cpu", "records"], self.json["loss"]["entries"], {"class": "loss_class"})
        lost, = self.outputs.rows("SELECT coalesce(sum(records), 0) AS n FROM losses")
        self.equal(lost["n"], self.json["loss"]["records"], "losses")
        self.equal([line.split()[1] for line in self.text.splitlines() if line.startswith("  lost  ")], [f"{lost['n']:,}"], "losses in the text")
        self.same_rows("sources", ["host", "device", "name", "state", "reason"], self.json["sources"])
        self.same_rows("warnings", ["warning"], [{"warning": warning} for warning in self.json["warnings"]])
        self.same_rows("clock_differences", ["host_a", "host_b", "b_minus_a_ns", "spread_ns", "connections"], self.json["clock_differences"])
        self.same_rows("clocks", ["host", "calibration", "reference", "constraints", "typical_error_ns", "worst_error_ns", "drift_least_ppb",
                                  "drift_most_ppb"], self.json["clocks"])
        self.same_rows("clock_windows", ["reference_ns", "least_ns", "most_ns", "ahead_least_ns", "ahead_most_ns"],
                       [window for clock in self.json["clocks"] for window in clock["windows"]])
        self.equal(self.outputs.columns("hosts", ["host", "boot_id", "kernel_release", "recordings", "recordings_excluded"]),
                   [(host["name"], host["boot_id"], host["kernel_release"], sum(not of["excluded"] for of in host["recordings"]),
                     sum(of["excluded"] for of in host["recordings"])) for host in self.json["hosts"]], "hosts")
        identity = self.json["identity"]
        self.equal(self.outputs.columns("identity", ["certainty", "payload_bytes"]),
                   [(word, identity[word]) for word in ("exact", "inferred", "process")] if identity else [], "identity")
        # The text leaves out a certainty that no NCCL of the recordings could have.
        for row in table(self.text, "How sure collwire is", "certainty"):
            if row["certainty"] in ("exact", "inferred", "process"):
                self.equal(row["payload"], human(identity[row["certainty"]]), row)

    def tiers(self):
        fields = ["qps", "qps_without_bytes", "tx_wire_bytes", "tx_payload_bytes", "retransmitted_wire_bytes", "derived_tx_payload_bytes"]
        self.equal(self.outputs.columns("tiers", ["tier", *fields, "sockets", "tcp_tx_payload_bytes"]),
                   [(tier, *(sums[field] for field in fields), *((sums["tcp"]["sockets"], sums["tcp"]["tx_payload_bytes"]) if sums["tcp"] else (0, None)))
                    for tier, sums in self.json["tiers"].items()], "tiers")
        by_tier = {row["tier"]: row for row in self.outputs.rows("SELECT * FROM tiers")}
        for row in table(self.text, "Sent, by the highest tier crossed", "tier"):
            found = by_tier[row["tier"]]
            if "wire bytes" in row:
                self.equal(row["wire bytes"], human(found["tx_wire_bytes"]), row)
                self.equal(row["payload"], human(found["tx_payload_bytes"]), row)
            if "TCP payload" in row:
                self.equal(row["TCP payload"], human(found["tcp_tx_payload_bytes"]), row)
        # The queue pairs of all hosts are the total of their tier.
        of_hosts = {row["tier"]: row for row in self.outputs.rows(
            "SELECT tier, sum(tx_wire_bytes) AS wire, sum(tx_payload_bytes) AS payload FROM host_tiers GROUP BY tier")}
        for tier, row in of_hosts.items():
            self.equal((row["wire"] or 0, row["payload"] or 0), (by_tier[tier]["tx_wire_bytes"] or 0, by_tier[tier]["tx_payload_bytes"] or 0), tier)

    def processes(self):
        self.same_rows("processes", PROCESS_FIELDS, self.json["processes"])
        self.equal(self.outputs.columns("processes", ["tcp_tx_payload_bytes", "tcp_rx_payload_bytes"]),
                   [((of["tcp"] or {}).get("tx_payload_bytes"), (of["tcp"] or {}).get("rx_payload_bytes")) for of in self.json["processes"]], "TCP")
        found = collections.defaultdict(dict)
        for row in self.outputs.rows("SELECT process, tier, tx_wire_bytes FROM process_tiers"):
            found[row["process"]][row["tier"]] = row["tx_wire_bytes"]
        order = [row["process"] for row in self.outputs.rows("SELECT process FROM processes")]
        self.equal([found[process] for process in order], [of["tx_wire_bytes_by_tier"] for of in self.json["processes"]], "tiers of processes")
        for row in table(self.text, "Processes", "host"):
            process, = self.outputs.rows(f"SELECT * FROM processes WHERE host = '{row['host']}' AND pid = {row['pid']}")
            if "sent" in row:
                self.equal((row["sent"], row["payload"], row["received"]),
                           tuple(human(process[name]) for name in ("tx_wire_bytes", "tx_payload_bytes", "rx_wire_bytes")), row)

    def hosts(self):
        """Between hosts, and of a host by tier from its queue pairs."""
        self.same_rows("host_pairs", ["source", "destination", "destination_captured", "qps", "tx_wire_bytes", "tx_payload_bytes"], self.json["node_pairs"],
                       {"source": "src_host", "destination_captured": "is_captured"})
        pairs = collections.defaultdict(dict)
        for row in self.outputs.rows("SELECT * FROM bytes_between_hosts"):
            pairs[row["src_host"], row["destination"]][row["tier"]] = row["tx_wire_bytes"]
        for pair in self.json["node_pairs"]:
            self.equal(pairs[pair["source"], pair["destination"]], pair["tx_wire_bytes_by_tier"], pair)
        sums = collections.defaultdict(list)
        for qp in self.json["qps"]:
            for part in qp.get("peers", [qp] if "peers" not in qp else []):
                sums[qp["host"], part["tier"]].append(part["tx_wire_bytes"])
        self.equal({(row["host"], row["tier"]): row["tx_wire_bytes"] for row in self.outputs.rows("SELECT * FROM host_tiers")},
                   {key: total(values) for key, values in sums.items()}, "hosts by tier")
        for row in table(self.text, "Sent between hosts, wire bytes", "from"):
            source = row.pop("from \\ to")
            for destination, cell in row.items():
                known = [pair for pair in self.json["node_pairs"] if (pair["source"], pair["destination"]) == (source, destination)]
                if cell and known:
                    self.equal(cell, human(sum(pairs[source, destination].values())), (source, destination))

    def communicators(self):
        self.same_rows("communicators", ["id", "hash", "name", "name_source", "guessed_role", "guess_reason", "n_ranks", "n_nodes", "parent", "ranks_seen"], self.json["communicators"],
                       {"id": "comm", "ranks_seen": "ranks_captured"})
        self.same_rows("ranks", RANK_FIELDS, [rank for comm in self.json["communicators"] for rank in comm["ranks"] if not rank["missing"]])
        self.same_rows("rank_pairs", ["comm", "src_rank", "dst_rank", "transport", "tier", "payload_bytes", "wire_bytes"], self.json["matrix"])
        payload = {row["comm"]: row for row in self.outputs.rows(
            "SELECT comm, count(operation) AS operations, sum(operations.tx_payload_bytes) AS payload FROM communicators LEFT JOIN operations USING (comm)"
            " GROUP BY comm")}
        every = self.json["collectives"] + self.json["p2p"]
        for comm in self.json["communicators"]:
            of = [operation["tx_payload_bytes"] for operation in every if operation["comm"] == comm["id"]]
            self.equal((payload[comm["id"]]["operations"], payload[comm["id"]]["payload"]), (len(of), total(of)), comm["id"])
            tiers = self.outputs.rows("SELECT sum(operation_tiers.tx_payload_bytes) AS n FROM operation_tiers JOIN operations USING (operation)"
                                      f" WHERE comm = {comm['id']}")
            self.equal(tiers[0]["n"] or 0, sum(tier["tx_payload_bytes"] for tier in comm["tiers"].values()), f"tiers of {comm['id']}")
        for row in table(self.text, "Communicators", "id"):
            found = payload[int(row["id"])]
            self.equal(row["ops"], f"{found['operations']:,}", row)
            unlisted = any(of["comm"] == int(row["id"]) for of in self.json["unjoined"] + self.json["replays_left_out"])
            if row["payload"] != "n/a" and not unlisted:
                self.equal(row["payload"], human(found["payload"] or 0), row)

    def operations(self):
        elements = self.json["collectives"] + self.json["p2p"]
        rows = self.outputs.rows("SELECT * FROM operations ORDER BY operation")
        self.equal(len(rows), len(elements), "operations")
        for row, element in zip(rows, elements):
            self.equal(row["kind"], "p2p" if "src_rank" in element else "collective", row)
            found = {field: row[OF_OPERATION.get(field, field)] for field in element if field not in NOT_IN_OPERATION}
            expected = {field: element[field] for field in found}
            if "source" in expected:
                expected["source"] = if_any(expected["source"])
            self.equal(found, expected, row["operation"])
        kinds = {(row["comm"], row["op"], human(row["size_bytes"]), row["algorithm"] or "-", row["protocol"] or "-"): row for row in self.outputs.rows(
            "SELECT comm, CASE kind WHEN 'p2p' THEN 'SendRecv' ELSE op END AS op, size_bytes, algorithm, protocol, count(*) AS n,"
            " sum(tx_payload_bytes) AS payload, sum(is_partial) AS partial FROM operations GROUP BY 1, 2, 3, 4, 5")}
        durations = collections.defaultdict(list)
        for element in elements:
            if element["most_duration_ns"] is not None:
                op = "SendRecv" if "src_rank" in element else element["op"]
                durations[element["comm"], op, element["size_bytes"], element["algorithm"], element["protocol"]].append(element["most_duration_ns"])
        self.equal({tuple(row.values())[:5]: (row["p50_ns"], row["p95_ns"], row["max_ns"]) for row in self.outputs.rows("SELECT * FROM times_by_size")},
                   {kind: (percentile(of, 50), percentile(of, 95), max(of)) for kind, of in durations.items()}, "times")
        for row in table(self.text, "Operations, the most sent first", "comm"):
            kind = (row["operation"], row["size"], row["algorithm"], row["protocol"])
            found = [kinds[comm, *kind] for comm in self.communicators_of(row["comm"]) if (comm, *kind) in kinds]
            n, payload, partial = (sum(of[field] or 0 for of in found) for field in ("n", "payload", "partial"))
            known = any(of["payload"] is not None for of in found)
            self.equal((row.get("count", row.get("count (unknown)", "")).split()[0], row["payload"], row["partial"]),
                       (f"{n:,}", human(payload if known else None), f"{partial:,}"), row)

    def communicators_of(self, title):
        """Numbers of the communicators that the text calls this: "3 data", or "data x 8" for all of that name."""
        name, is_group, n = title.rpartition(" x ")
        if not is_group:
            return [int(title.split()[0])]
        found = [comm["id"] for comm in self.json["communicators"] if name in (comm["name"], f"{comm['guessed_role']}?")]
        self.equal(len(found), int(n), title)
        return found

    def operation_tiers(self):
        found = collections.defaultdict(dict)
        for row in self.outputs.rows("SELECT * FROM operation_tiers"):
            found[row["operation"]][row["tier"]] = {"tx_payload_bytes": row["tx_payload_bytes"], "tx_wire_bytes": row["tx_wire_bytes"]}
        for number, element in enumerate(self.json["collectives"] + self.json["p2p"]):
            self.equal(found[number], element["tiers"], number)

    def operation_ranks(self):
        rows = collections.defaultdict(list)
        for row in self.outputs.rows("SELECT * FROM operation_ranks"):
            rows[row["operation"]].append(row)
        for number, element in enumerate(self.json["collectives"] + self.json["p2p"]):
            self.equal([(row["rank"], row["op"], row["called_realtime_ns"]) for row in rows[number]],
                       [(call["rank"], call["op"], call["called_realtime_ns"]) for call in element["calls"]], number)
            for row in rows[number]:
                sent = [part["payload_bytes"] for part in element["parts"] if part["rank"] == row["rank"] and part["direction"] == "send"]
                if row["tx_payload_bytes"] is not None and len({other["host"] for other in rows[number]}) == len(rows[number]):
                    self.equal(row["tx_payload_bytes"], sum(sent), (number, row["rank"]))

    def waiting(self):
        elements = self.json["waiting"]
        self.same_rows("waiting", ["comm", "op", "size_bytes", "algorithm", "protocol", "waited", "transferred", "unclear", "sum_waited_ns"], elements)
        for what in ("spread", "transfer"):
            names = [f"{bound}_{percent}" for bound in ("least", "most") for percent in ("p50", "p95")]
            self.equal(self.outputs.columns("waiting", [f"{what}s", *(f"{name}_{what}_ns" for name in names)]),
                       [(of["n"], *(of[f"{name}_ns"] for name in names)) if of else (0, *[None] * 4) for of in (each[what] for each in elements)], what)
        self.equal(self.outputs.columns("waiting_ranks", ["waiting", "rank", "operations"]),
                   [(number, last["rank"], last["operations"]) for number, element in enumerate(elements) for last in element["last_ranks"]], "last ranks")
        # The text leaves out kinds of which nothing is clear.
        clear = [row for row in self.outputs.rows("SELECT * FROM waiting ORDER BY waiting") if row["waited"] + row["transferred"]]
        shown = table(self.text, "Waiting for the last rank to call", "comm")
        self.equal([(int(row["comm"].split()[0]), row["operation"], row["size"], row["waiting"], row["transfer"], row["unclear"]) for row in shown],
                   [(row["comm"], row["op"], human(row["size_bytes"]), *(f"{row[name]:,}" for name in ("waited", "transferred", "unclear")))
                    for row in clear], "waiting in the text")

    def queue_pairs(self):
        self.same_rows("qps", QP_FIELDS, self.json["qps"])
        self.equal(self.outputs.columns("qps", ["certainty", "byte_source", "is_preexisting"]),
                   [(if_any(qp["identity_rung"]), if_any(qp["bytes_rung"]), qp["preexisting"]) for qp in self.json["qps"]], "certainty and byte source")
        self.equal([tuple(row.values()) for row in self.outputs.rows("SELECT remote_gid, remote_qpn, tier, tx_frames, tx_wire_bytes FROM qp_peers")],
                   [tuple(peer[field] for field in ("gid", "qpn", "tier", "tx_frames", "tx_wire_bytes"))
                    for qp in self.json["qps"] for peer in qp.get("peers", [])], "qp_peers")
        peers = {row["qp"]: row["n"] for row in self.outputs.rows("SELECT qps.qp, peer.qpn AS n FROM qps JOIN qps AS peer ON qps.peer = peer.qp")}
        self.equal([peers.get(number) for number in range(len(self.json["qps"]))], [qp["peer"] and qp["peer"]["qpn"] for qp in self.json["qps"]], "peers")
        for row in table(self.text, "Queue pairs", "host"):
            if "sent" not in row:
                continue
            found = self.outputs.rows(f"SELECT * FROM qps WHERE host = '{row['host']}' AND device = '{row['device']}' AND qpn = {row['qpn']}")
            shown = (row["tier"], row["sent"], row["payload"], row["received"])
            self.test.assertIn(shown, [(qp["tier"], *(human(qp[name]) for name in ("tx_wire_bytes", "tx_payload_bytes", "rx_wire_bytes")))
                                       for qp in found], row)
            self.n += 1

    def ports_and_sockets(self):
        self.same_rows("ports", PORT_FIELDS, self.json["ports"])
        self.equal(self.outputs.columns("ports", ["counter", "switch_name"]), [(port["source"], port["switch"]) for port in self.json["ports"]], "ports")
        self.same_rows("sockets", SOCKET_FIELDS, self.json["sockets"])

    def incidents(self):
        incidents = self.json["port_incidents"]
        self.same_rows("port_incidents", ["realtime_ns", "host", "device", "port", "times_down", "down_ns", "down_at_end"], incidents,
                       {"down_at_end": "is_down_at_end"})
        uses = [incident["communicators"] for incident in incidents]
        self.equal(self.outputs.columns("port_incidents", ["duration_ns", "processes", "running", "perhaps_running", "errors", "kinds"]),
                   [(incident["end_realtime_ns"] - incident["realtime_ns"], len(incident["processes"]), sum(use["running"] for use in of),
                     sum(use["perhaps_running"] for use in of), len(incident["errors"]), ",".join(sorted(incident["events"])))
                    for incident, of in zip(incidents, uses)], "port incidents")
        found = self.outputs.rows("SELECT incident, is_certain, o.comm, o.seq FROM port_incident_operations JOIN operations o USING (operation)")
        listed = [(number, certain, use["comm"], operation.get("seq", operation.get("ordinal"))) for number, of in enumerate(uses) for use in of
                  for certain, name in ((1, "running_operations"), (0, "perhaps_running_operations")) for operation in use[name]]
        self.equal(sorted((row["incident"], row["is_certain"], row["comm"], row["seq"]) for row in found), sorted(listed), "operations of port incidents")
        first = re.findall(r"^  port incidents (.*)", self.outputs.text, re.MULTILINE)
        self.equal(len(first), 1 if incidents else 0, "port incidents in the first lines")

    def troubles(self):
        self.same_rows("events", EVENT_FIELDS, self.json["events"])
        self.incidents()
        self.same_rows("errors", ERROR_FIELDS, self.json["errors"])
        self.same_rows("findings", ["kind", "what"], self.json["findings"], {"what": "sentence"})
        if self.json["gpu"]:
            kernels, = self.outputs.rows("SELECT count(*) AS n, sum(comm IS NOT NULL) AS joined FROM kernels")
            devices = [device for process in self.json["gpu"]["processes"] for device in process["devices"]]
            self.equal(kernels["n"], sum(device["kernels"] for device in devices), "kernels")
            if len(self.json["hosts"]) == 1:  # else the report aligns the hosts' clocks
                last = collections.Counter()
                for kind in self.json["gpu"]["operations"]:
                    last.update({(kind["comm"], int(rank)): n for rank, n in kind["last_ranks"].items()})
                self.equal({(row["comm"], row["rank"]): row["n"] for row in self.outputs.rows(
                    "SELECT comm, rank, count(*) AS n FROM last_to_start GROUP BY comm, rank")}, dict(last), "last kernels")
            self.equal(kernels["joined"], sum(device["exact"] + device["by_time"] for device in devices), "kernels with a launch")


class SameAnswers(unittest.TestCase):
    maxDiff = 4000

    def compare(self, paths, topology=None, least=20):
        with tempfile.TemporaryDirectory() as folder:
            outputs = Outputs(folder, paths, topology)
            n = Comparison(self, outputs).run()
            self.assertGreater(n, least)
            return outputs

    def test_captures_of_earlier_versions(self):
        for name in ("1.5-rdma", "1.7-gpu", "1.8-nvlink"):
            directory = os.path.join(ROOT, "tests", "captures", name)
            topology = os.path.join(directory, "topology.json")
            self.compare([directory], topology if os.path.exists(topology) else None)

    def test_recordings_of_a_gpu(self):
        paths = sorted(glob.glob(f"{ROOT}/tests/gpu/recordings/*.cwc"))
        self.assertTrue(paths)
        for path in paths:
            self.compare([path])

    def test_scenarios_of_the_golden_reports(self):
        if not arguments.golden_captures:
            self.skipTest("without --golden-captures")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([arguments.golden_captures, folder], check=True)
            names = sorted(os.listdir(folder))
            self.assertEqual({name + ".json" for name in names},
                             {os.path.basename(path) for path in glob.glob(f"{ROOT}/tests/golden/*.json")})
            for name in names:
                self.compare([os.path.join(folder, name)], os.path.join(folder, name, "topology.json"))

    def test_a_generated_job(self):
        if not arguments.trace_gen:
            self.skipTest("without --trace-gen")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([arguments.trace_gen, "job", "--nodes", "2", "--tp", "4", "--iterations", "2", "--layers", "1", "--network-times",
                            "--local-launches", "--out", folder], check=True, stdout=subprocess.DEVNULL)
            outputs = self.compare([folder], os.path.join(folder, "topology.json"))
            # Against the truth of the generator.
            with open(os.path.join(folder, "truth.jsonl"), encoding="utf-8") as file:
                truth = [json.loads(line) for line in file]
            sums = [row for row in truth if row["kind"] == "sum"]
            found, = outputs.rows("SELECT sum(tx_payload_bytes) AS n FROM operations")
            self.assertEqual(found["n"], sum(row["payload_bytes"] for row in sums))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--golden-captures")
    parser.add_argument("--trace-gen")
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
