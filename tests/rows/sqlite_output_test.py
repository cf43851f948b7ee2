#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report --sqlite FILE` as a program: the file documents itself, its views work, and FILE is whole or untouched: with a full disk, after Ctrl-C.

sqlite_output_test.py --collwire FILE --trace-gen FILE"""

import argparse
import collections
import json
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CAPTURES = os.path.join(ROOT, "tests", "captures", "1.5-rdma")
arguments = argparse.Namespace()


def report(*words, **more):
    return subprocess.run([arguments.collwire, "report", *words], capture_output=True, text=True, check=False, **more)


def limit_files_to_64_kib():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


class SqliteOutput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.job = tempfile.mkdtemp(prefix="collwire-rows-")
        cls.addClassCleanup(shutil.rmtree, cls.job)
        subprocess.run([arguments.trace_gen, "job", "--nodes", "4", "--tp", "4", "--layers", "2", "--iterations", "3", "--out", cls.job], check=True,
                       stdout=subprocess.DEVNULL)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="collwire-rows-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "report.sqlite")

    def write(self, *words):
        done = report(CAPTURES, "--sqlite", self.path, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        database = sqlite3.connect(self.path)
        self.addCleanup(database.close)
        return database

    def mode(self):
        return stat.S_IMODE(os.stat(self.path).st_mode)

    def assert_one_line(self, done, status, *parts):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in (*parts, "Fix: "):
            self.assertIn(part, done.stderr)

    def test_file_documents_itself(self):
        for words in (("--detail",), ("--every", "1s")):
            self.check_documentation(self.write(*words))

    def check_documentation(self, database):
        documented = {}
        for table, column, unit, meaning, is_nullable in database.execute("SELECT * FROM columns"):
            documented.setdefault(table, []).append((column, is_nullable))
            self.assertTrue(unit and meaning.endswith("."), (table, column))
        tables = {name: rows for name, rows in database.execute("SELECT table_name, rows FROM tables")}
        self.assertEqual(list(documented), list(tables))
        for name, rows in tables.items():
            self.assertEqual(documented[name], [(column[1], int(not column[3])) for column in database.execute(f'PRAGMA table_info("{name}")')], name)
            self.assertEqual(database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0], rows, name)
        every = {name for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.assertEqual(every - set(tables), {"tables", "columns", "views"})
        self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        self.assertEqual(database.execute("PRAGMA user_version").fetchone(), (1,))

    def test_values_have_the_type_of_their_column(self):
        for words in (("--detail",), ("--every", "1s")):
            self.check_types(self.write(*words))

    def check_types(self, database):
        for table, in database.execute("SELECT table_name FROM tables").fetchall():
            for column in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                types = {kind for kind, in database.execute(f'SELECT DISTINCT typeof("{column[1]}") FROM "{table}"')} - {"null"}
                self.assertLessEqual(types, {column[2].lower()}, (table, column))

    def test_rows_are_those_of_the_schema(self):
        with open(os.path.join(ROOT, "docs", "rows.schema.json"), encoding="utf-8") as file:
            tables = json.load(file)["$defs"]
        there = []
        for words in (("--detail",), ("--every", "1s")):
            database = self.write(*words)
            database.row_factory = sqlite3.Row
            names = [row["table_name"] for row in database.execute("SELECT table_name FROM tables")]
            self.check_rows(database, {name: tables[name] for name in names})
            there += names
        self.assertEqual(there, list(tables))

    def check_rows(self, database, tables):
        types = {"integer": int, "string": str, "null": type(None)}
        for name, schema in tables.items():
            for row in database.execute(f'SELECT * FROM "{name}"'):
                self.assertEqual(row.keys(), schema["required"])
                for column, of in schema["properties"].items():
                    kinds = of["type"] if isinstance(of["type"], list) else [of["type"]]
                    self.assertIsInstance(row[column], tuple(types[kind] for kind in kinds), (name, column))
                    if "enum" in of:
                        self.assertIn(row[column], of["enum"])

    def test_views_work(self):
        for words in ((), ("--detail",)):
            database = self.write(*words)
            named = {name for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
            self.assertEqual(named, {name for name, in database.execute("SELECT view_name FROM views")})
            for name in named:
                rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
                self.assertEqual(len(rows) > 0, name != "last_to_start", name)  # no kernel was recorded
        self.assertIn("last_to_start", named)
        database = self.write("--every", "1s")
        self.assertEqual([name for name, in database.execute("SELECT view_name FROM views")], ["nic_rates"])
        self.assertGreaterEqual(len(database.execute("SELECT * FROM nic_rates").fetchall()), 0)

    def test_without_detail_its_tables_are_absent(self):
        database = self.write()
        self.assertEqual(database.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('operation_ranks', 'last_to_start')").fetchone(), (0,))

    def test_new_file_is_readable_by_its_owner_only(self):
        self.write()
        self.assertEqual(self.mode(), 0o600)
        self.assertEqual(os.listdir(self.folder), ["report.sqlite"])

    def test_existing_file_is_replaced_and_keeps_its_mode(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("something else")
        os.chmod(self.path, 0o644)
        database = self.write()
        self.assertEqual(self.mode(), 0o644)
        self.assertGreater(database.execute("SELECT count(*) FROM qps").fetchone()[0], 0)

    def test_link_stays_a_link(self):
        target = os.path.join(self.folder, "target.sqlite")
        with open(target, "w", encoding="utf-8"):
            pass
        os.symlink(target, self.path)
        self.write()
        self.assertTrue(os.path.islink(self.path))
        self.assertGreater(os.path.getsize(target), 0)

    def test_capture_is_never_replaced(self):
        capture = os.path.join(self.folder, "0.cwc")
        shutil.copy(os.path.join(CAPTURES, sorted(name for name in os.listdir(CAPTURES) if name.endswith(".cwc"))[0]), capture)
        with open(capture, "rb") as file:
            before = file.read()
        self.assert_one_line(report(CAPTURES, "--sqlite", capture), 2, "--sqlite", "capture")
        with open(capture, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_what_is_no_file_is_refused(self):
        self.assert_one_line(report(CAPTURES, "--sqlite", "-"), 2, "--sqlite -")
        self.assert_one_line(report(CAPTURES, "--sqlite", self.path, "--json", self.path), 2, "same file")
        for path in (self.folder, "/dev/full", "/dev/null"):
            self.assert_one_line(report(CAPTURES, "--sqlite", path), 1, path, "not a regular file")
        self.assert_one_line(report(CAPTURES, "--sqlite", os.path.join(self.folder, "no", "such")), 1, "No such file")
        self.assertEqual(os.listdir(self.folder), [])

    def test_full_disk_is_one_line_and_leaves_nothing(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("of before")
        done = report(self.job, "--sqlite", self.path, preexec_fn=limit_files_to_64_kib)
        self.assert_one_line(done, 1, self.path, "cannot write")
        self.assertEqual(os.listdir(self.folder), ["report.sqlite"])
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "of before")

    def test_disk_that_is_really_full(self):
        script = f'mount -t tmpfs -o size=128k none "{self.folder}" && "$0" report "$1" --sqlite "{self.path}" >/dev/null; echo $? $(ls "{self.folder}" | wc -l)'
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, arguments.collwire, self.job], capture_output=True, text=True, check=False)
        if "unshare failed" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no mount namespace here: " + done.stderr)
        self.assertEqual(done.stdout, "1 0\n", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("disk is full", done.stderr)

    def test_signal_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            done = subprocess.Popen([arguments.collwire, "report", self.job, "--detail", "--sqlite", self.path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE)
            while not os.listdir(self.folder) and done.poll() is None:
                pass
            done.send_signal(number)
            done.communicate()
            self.assertEqual(done.returncode, -number)
            self.assertEqual(os.listdir(self.folder), [])

    def test_ignored_signal_is_ignored(self):
        done = subprocess.Popen([arguments.collwire, "report", self.job, "--detail", "--sqlite", self.path], stdout=subprocess.DEVNULL,
                                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        while not os.listdir(self.folder) and done.poll() is None:
            pass
        done.send_signal(signal.SIGHUP)
        self.assertEqual(done.wait(), 0)
        self.assertEqual(os.listdir(self.folder), ["report.sqlite"])

    def test_same_captures_make_the_same_file(self):
        contents = []
        for _ in range(2):
            self.assertEqual(report(self.job, "--detail", "--sqlite", self.path).returncode, 0)
            database = sqlite3.connect(self.path)
            contents.append("\n".join(database.iterdump()))
            database.close()
        self.assertEqual(contents[0], contents[1])

    def test_last_to_call_is_the_last_rank_of_the_truth(self):
        self.assertEqual(report(self.job, "--detail", "--sqlite", self.path).returncode, 0)
        database = sqlite3.connect(self.path)
        self.addCleanup(database.close)
        with open(os.path.join(self.job, "truth.jsonl"), encoding="utf-8") as file:
            truth = [json.loads(line) for line in file]
        hashes = {row["comm"]: row["hash"] for row in truth if row["kind"] == "communicator"}
        shapes = {row["shape"]: row for row in truth if row["kind"] == "shape"}
        expected = {(hashes[row["comm"]], row["seq"]): (row["last_rank"], row["spread_ns"]) for row in truth
                    if row["kind"] == "operation" and shapes[row["shape"]]["what"] == "collective"}
        found = {(row[0], row[1]): (row[2], row[3]) for row in database.execute(
            "SELECT hash, seq, last_rank, last_call_after_first_ns FROM operations JOIN communicators USING (comm) WHERE kind = 'collective'")}
        self.assertEqual(set(found), set(expected))
        self.assertGreater(len(found), 100)
        # A last rank is named where the clocks show it, always if all ranks are of one host.
        error_ns = 2 * max(row[0] or 0 for row in database.execute("SELECT worst_error_ns FROM clocks"))
        hosts_of = dict(database.execute("SELECT hash, count(DISTINCT host) FROM ranks JOIN communicators USING (comm) GROUP BY hash"))
        claimed = {key for key in expected if found[key][0] is not None}
        self.assertEqual({key for key in expected if hosts_of[key[0]] == 1} - claimed, set())
        for key in claimed:
            rank, spread_ns = expected[key]
            self.assertEqual(found[key][0], rank, key)
            self.assertAlmostEqual(found[key][1], spread_ns, delta=20 if hosts_of[key[0]] == 1 else error_ns)
        self.assertTrue([key for key in expected if expected[key][1] > 2 * error_ns and hosts_of[key[0]] > 1] == [] or
                        [key for key in claimed if hosts_of[key[0]] > 1])
        # The view adds up what the rows have, and the calls of ranks agree with them.
        times = {}
        for (comm, _), (rank, spread_ns) in found.items():
            if rank is None:
                continue
            times.setdefault((comm, rank), []).append(spread_ns)
        self.assertEqual({(row[0], row[1]): row[2:] for row in database.execute(
            "SELECT hash, last_rank, operations, p50_after_first_ns, max_after_first_ns FROM last_to_call JOIN communicators USING (comm)"
            " WHERE comm NOT IN (SELECT comm FROM operations WHERE kind = 'p2p')")},
            {key: (len(of), sorted(of)[max((len(of) * 50 + 99) // 100, 1) - 1], max(of)) for key, of in times.items()})
        self.assertEqual(database.execute(
            "SELECT count(*) FROM operations JOIN (SELECT operation, max(called_common_ns) - min(called_common_ns) AS spread FROM operation_ranks"
            " GROUP BY operation) USING (operation) WHERE last_call_after_first_ns <> spread AND"
            " (SELECT count(DISTINCT host) FROM ranks WHERE ranks.comm = operations.comm) > 1").fetchone(), (0,)) # else by the host's own clock

    def test_traffic_views_are_those_of_the_truth(self):
        self.assertEqual(report(self.job, "--sqlite", self.path).returncode, 0)
        database = sqlite3.connect(self.path)
        self.addCleanup(database.close)
        with open(os.path.join(self.job, "truth.jsonl"), encoding="utf-8") as file:
            truth = [json.loads(line) for line in file]
        comms = {row["comm"]: row for row in truth if row["kind"] == "communicator"}
        shapes = {row["shape"]: row for row in truth if row["kind"] == "shape"}
        nodes = {row["node"]: row["host"] for row in truth if row["kind"] == "node"}
        places = {row["rank"]: (nodes[row["node"]], row["gpu"]) for row in truth if row["kind"] == "rank"}
        traffic = {(row["shape"], row["comm"], row["stage"]): row for row in truth if row["kind"] == "traffic"}
        step_ns = next(row["step_ns"] for row in truth if row["kind"] == "job")
        operations = [row for row in truth if row["kind"] == "operation"]
        kinds, sizes, edges, bytes_of = collections.Counter(), collections.Counter(), collections.defaultdict(set), collections.Counter()
        between = collections.Counter()
        for row in operations:
            shape, of = shapes[row["shape"]], traffic[row["shape"], row["comm"], row["stage"]]
            comm = comms[row["comm"]]
            kinds[comm["hash"], shape["op"]] += 1
            sizes[shape["op"], 1 << (shape["size_bytes"] - 1).bit_length()] += 1
            bytes_of[comm["hash"], shape["op"]] += of["payload_bytes"]
            for src, dst, _, payload_bytes, _ in of["edges"]:
                edges[comm["hash"]].add((src, dst))
                between[places[comm["ranks"][src]], places[comm["ranks"][dst]]] += payload_bytes
        self.assertGreater(len(operations), 200)
        self.assertEqual({row[:2]: row[2:] for row in database.execute(
            "SELECT hash, op, operations, tx_payload_bytes FROM operations_by_kind JOIN communicators USING (comm)")},
            {key: (n, bytes_of[key]) for key, n in kinds.items()})
        self.assertEqual({row[:2]: row[2] for row in database.execute("SELECT op, at_most_bytes, operations FROM sizes")}, dict(sizes))
        self.assertEqual(database.execute("SELECT count(*) FROM sizes WHERE more_than_bytes * 2 <> at_most_bytes").fetchone(), (0,))
        self.assertEqual({row[0]: row[1:] for row in database.execute("SELECT hash, pairs, pairs_not_captured, pairs_with_bytes FROM sparsity"
                                                                      " JOIN communicators USING (comm)")},
                         {comm["hash"]: (comm["n_ranks"] * (comm["n_ranks"] - 1), 0, len(edges[comm["hash"]])) for comm in comms.values()})
        gpus = {row[:2]: row[2] for row in database.execute("SELECT DISTINCT host, gpu_pci_address, gpu FROM ranks")}
        self.assertEqual({((row[0], gpus[row[0], row[1]]), (row[2], gpus[row[2], row[3]])): row[4] for row in database.execute(
            "SELECT src_host, src_gpu, dst_host, dst_gpu, sum(payload_bytes) FROM bytes_between_gpus GROUP BY 1, 2, 3, 4")}, dict(between))
        for view in ("operations_by_kind", "tiers_by_second"):
            self.assertEqual(database.execute(f"SELECT sum(tx_payload_bytes) FROM {view}").fetchone()[0], sum(bytes_of.values()), view)
        durations = database.execute("SELECT sum(operations), max(up_to_here_percent), sum(bounds) FROM durations").fetchone()
        self.assertEqual(durations, database.execute("SELECT count(*), 100.0, sum(end_known <> 'measured') FROM operations"
                                                     " WHERE most_duration_ns IS NOT NULL").fetchone())
        # All data parallel communicators have one burst in each step of the training.
        steps = database.execute("SELECT bursts, min_period_ns, max_period_ns FROM burst_periods JOIN communicators USING (comm)"
                                 " WHERE name LIKE 'data%' AND rest_ns = 1000000000").fetchall()
        self.assertEqual(len(steps), sum(comm["role"] == "data" for comm in comms.values()))
        for bursts, *periods in steps:
            self.assertEqual(bursts, 3)
            for period_ns in periods:
                self.assertAlmostEqual(period_ns, step_ns, delta=step_ns // 100)
        self.assertEqual(database.execute("SELECT DISTINCT n FROM (SELECT sum(operations) AS n FROM bursts GROUP BY rest_ns)").fetchall(), [(len(operations),)])

    def test_late_ranks_are_those_of_the_truth(self):
        job = os.path.join(self.folder, "late")
        os.mkdir(job)
        subprocess.run([arguments.trace_gen, "job", "--nodes", "2", "--iterations", "8", "--late", "5:300", "--late", "11:40:2-5", "--network-times",
                        "--skew", "constant:700", "--out", job], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(job, "truth.jsonl"), encoding="utf-8") as file:
            truth = [json.loads(line) for line in file]
        late = collections.defaultdict(list)
        for row in truth:
            if row["kind"] == "operation":
                after_ns = sorted(row["after_first_ns"])
                median_ns = after_ns[(len(after_ns) - 1) // 2]
                for rank, of_rank_ns in enumerate(row["after_first_ns"]):
                    if of_rank_ns - median_ns >= 2_000_000:  # the clocks are known to less than that
                        late[rank].append(of_rank_ns - median_ns)
        self.assertEqual(set(late), {5, 11})
        done = report(job, "--sqlite", self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(line for line in done.stdout.splitlines() if line.startswith("  late ranks"))
        self.assertIn(f"rank 5 of data0 (gpu-0000, pid 20005) calls {len(late[5])} of 40 collectives late", line)
        database = sqlite3.connect(self.path)
        self.addCleanup(database.close)
        found = {row[0]: row[1:] for row in database.execute("SELECT rank, compared_calls, late_calls, median_late_ns, last_calls FROM ranks")}
        self.assertEqual(len(found), 16)
        for rank, (compared, late_calls, median_ns, _) in found.items():
            self.assertGreater(compared, 30, rank)
            self.assertEqual(late_calls, len(late[rank]), rank)
            if late[rank]:
                true_ns = sorted(late[rank])[(len(late[rank]) - 1) // 2]
                self.assertLessEqual(median_ns, true_ns + 1000, rank)
                self.assertGreater(median_ns, true_ns - 2_000_000, rank)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    arguments, rest = parser.parse_known_args()
    arguments.collwire = os.path.realpath(arguments.collwire)
    unittest.main(argv=[sys.argv[0], *rest])
