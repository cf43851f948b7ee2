#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report --every` of generated jobs against their truth: each interval has the collectives and sends that were called in it, the bytes of all
intervals are those of the whole report, and a late rank and a port's errors are in the intervals of their time alone.

Of recordings of official NCCL the sums of all intervals, of several lengths, are the whole report's.

intervals_test.py --collwire FILE --trace-gen FILE [DIRECTORY...]"""

import argparse
import collections
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

from truth import Truth

S = 1_000_000_000
LENGTHS_S = (1, 2, 3, 5, 10)
# name: options of the job, length of an interval in s
COUNTED = {
    "ring": (["--nodes", "2", "--iterations", "16"], 3),
    "mixed": (["--nodes", "4", "--tp", "4", "--ep", "8", "--sharded", "--iterations", "12"], 5),
    "times": (["--nodes", "2", "--iterations", "16", "--network-times", "--local-launches"], 4),
    "pipeline": (["--nodes", "4", "--tp", "8", "--pp", "2", "--iterations", "12"], 4),
    "computed": (["--nodes", "4", "--tp", "8", "--iterations", "12", "--bytes", "computed"], 3),
    "skew": (["--nodes", "4", "--iterations", "16", "--skew", "constant:40", "--no-small"], 4),
    # Collectives on both sides of a bound.
    "late": (["--nodes", "2", "--iterations", "16", "--late", "5:700"], 1),
    "later": (["--nodes", "2", "--iterations", "10", "--late", "5:2500"], 1), # nothing is called in some intervals
    "late-inside": (["--nodes", "2", "--tp", "8", "--iterations", "16", "--late", "5:700"], 1),
}


def run(arguments, *words, status=0):
    done = subprocess.run([arguments.collwire, "report", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{words}: status {done.returncode}: {done.stderr}"
    return done


def generate(arguments, options, directory):
    subprocess.run([arguments.trace_gen, "job", *options, "-o", directory], check=True, stdout=subprocess.DEVNULL)
    return Truth(os.path.join(directory, "truth.jsonl"))


def bounds_of(interval):
    return interval["begin_realtime_ns"], interval["end_realtime_ns"]


def first_calls(truth):
    """By communicator: CLOCK_REALTIME of the first call of each collective."""
    calls = collections.defaultdict(list)
    for row in truth.operations:
        if truth.shapes[row["shape"]]["what"] == "collective":
            at = [truth.realtime_ns(truth.node_of(row["comm"], rank), row["first_ns"] + after)
                  for rank, after in enumerate(row["after_first_ns"]) if after is not None]
            calls[row["comm"]].append(min(at))
    return calls


def sent_at(truth):
    """By communicator: CLOCK_REALTIME of the sender's call of each send."""
    calls = collections.defaultdict(list)
    for (comm, src, dst), rows in truth.exchanges().items():
        ranks = sorted((src, dst))
        for row in rows:
            what = truth.shapes[row["shape"]]["what"]
            after = row["after_first_ns"][ranks.index(src) if what == "transfer" and len(row["after_first_ns"]) == 2 else src]
            calls[comm].append(truth.realtime_ns(truth.node_of(comm, src), row["first_ns"] + after))
    return calls


def check_counts(truth, name, intervals):
    comms = {row["hash"]: row["comm"] for row in truth.comms.values()}
    all_of = {"collectives": first_calls(truth), "sends": sent_at(truth)}
    counted = 0
    for interval in intervals:
        begin_ns, end_ns = bounds_of(interval)
        for what, calls in all_of.items():
            expected = {comm: n for comm, at in calls.items() if (n := sum(begin_ns <= one < end_ns for one in at))}
            found = {comms[row["comm_hash"]]: row[what] for row in interval["communicators"] if row[what]}
            assert found == expected, f"{name}: {what} of interval {interval['interval']}: {found}, the truth is {expected}"
            assert interval[what] == sum(expected.values()), f"{name}: {what} of interval {interval['interval']}"
            counted += interval[what]
    assert counted == sum(len(at) for calls in all_of.values() for at in calls.values()), f"{name}: {counted} operations"
    return counted


def total(rows, *columns):
    return sum(row[column] or 0 for row in rows for column in columns)


def check_bytes(name, whole, intervals, is_computed):
    """Against the report of everything, whose numbers have their own tests."""
    # What was computed is of launches, and each launch is in one interval; what was counted ends with the last sample of each.
    columns = ["tx_wire_bytes", "derived_tx_wire_bytes"]
    expected = collections.Counter({tier: total([row], *columns) for tier, row in whole["tiers"].items()})
    found = collections.Counter()
    for interval in intervals:
        assert total([interval], *columns) == total(interval["tiers"], *columns), name
        for row in interval["tiers"]:
            found[row["tier"]] += total([row], *columns)
    assert +found == +expected and found, f"{name}: bytes by tier {found}, of the whole report {expected}"
    assert bool(total(intervals, "derived_tx_wire_bytes")) == is_computed, name
    ports = collections.Counter()
    for interval in intervals:
        for row in interval["ports"]:
            ports[row["host"], row["device"], row["port"]] += row["tx_wire_bytes"]
    for row in whole["ports"]:
        if row["tx_wire_bytes"] is not None:
            key = row["host"], row["device"], row["port"]
            assert ports[key] == row["tx_wire_bytes"], f"{name}: {key}: {ports[key]} bytes, of the whole report {row['tx_wire_bytes']}"
    return sum(found.values())


def check_tables(path, intervals):
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    for table, key in (("intervals", None), ("interval_tiers", "tiers"), ("interval_ports", "ports"), ("interval_communicators", "communicators")):
        expected = [{name: value for name, value in row.items() if not isinstance(value, list)}
                    for interval in intervals for row in ([interval] if key is None else interval[key])]
        found = [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
        assert found == expected, f"{table}: JSON and SQLite differ"
    lengths_ns = {row["interval"]: row["end_realtime_ns"] - row["begin_realtime_ns"] for row in intervals}
    fullest = max((8e5 * max(row["tx_wire_bytes"], row["rx_wire_bytes"]) / lengths_ns[row["interval"]] / row["rate_mbps"]
                   for interval in intervals for row in interval["ports"]), default=None)
    assert database.execute("SELECT percent FROM nic_rates LIMIT 1").fetchone()[0] == fullest, "nic_rates"
    database.close()


def check_counted(arguments, name, options, every_s):
    with tempfile.TemporaryDirectory() as directory:
        truth = generate(arguments, options, directory)
        words = [directory, "--topology", os.path.join(directory, "topology.json")]
        sqlite = os.path.join(directory, "intervals.sqlite")
        document = json.loads(run(arguments, *words, "--every", f"{every_s}s", "--json", "-", "--sqlite", sqlite).stdout)
        intervals = document["intervals"]
        assert bounds_of(document) == (intervals[0]["begin_realtime_ns"], intervals[-1]["end_realtime_ns"]), name
        for before, after in zip(intervals, intervals[1:]):
            assert before["end_realtime_ns"] == after["begin_realtime_ns"] and after["begin_realtime_ns"] % (every_s * S) == 0, name
        counted = check_counts(truth, name, intervals)
        whole = json.loads(run(arguments, *words, "--json", "-").stdout)
        sent = check_bytes(name, whole, intervals, "computed" in options)
        check_tables(sqlite, intervals)
        lines = run(arguments, *words, "--every", f"{every_s}s").stdout.splitlines()
        for interval in intervals:
            at_ms = interval["begin_realtime_ns"] // 1_000_000
            clock = time.strftime("%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03}"
            found = [line.split()[1:3] for line in lines[3:] if line.startswith(clock)]
            assert found == [[f"{interval['collectives']:,}", f"{interval['sends']:,}"]], f"{name}: {clock} {found}, JSON has {interval}"
        print(f"{name}: {len(intervals)} intervals, {counted} operations, {sent} bytes sent", flush=True)


def check_recording(arguments, directory):
    whole = json.loads(run(arguments, directory, "--json", "-").stdout)
    tcp = whole["total"]["tcp"] or {}
    expected = {"tx_wire_bytes": whole["total"]["tx_wire_bytes"] or 0, "derived_tx_wire_bytes": whole["total"]["derived_tx_wire_bytes"] or 0,
                "tcp_tx_payload_bytes": tcp.get("tx_payload_bytes") or 0, "collectives": len(whole["collectives"]), "sends": len(whole["p2p"])}
    for every_s in LENGTHS_S:
        intervals = json.loads(run(arguments, directory, "--every", f"{every_s}s", "--json", "-").stdout)["intervals"]
        found = {column: total(intervals, column) for column in expected}
        assert found == expected, f"{directory}: intervals of {every_s} s: {found}, the whole report has {expected}"
        ports = total([row for interval in intervals for row in interval["ports"]], "tx_wire_bytes")
        assert ports == total(whole["ports"], "tx_wire_bytes"), f"{directory}: ports, intervals of {every_s} s"
    print(f"{directory}: {expected}", flush=True)


def check_step(arguments):
    """The clock of a node is set while it is recorded: nothing is lost or counted twice."""
    for step in ("0:3600000:10", "0:-7000:9"):
        with tempfile.TemporaryDirectory() as directory:
            truth = generate(arguments, ["--nodes", "2", "--iterations", "12", "--clock", step], directory)
            intervals = json.loads(run(arguments, directory, "--every", "3s", "--json", "-").stdout)["intervals"]
            calls = sum(len(at) for at in first_calls(truth).values())
            assert total(intervals, "collectives") == calls, f"{step}: {total(intervals, 'collectives')} collectives, the truth is {calls}"
            whole = json.loads(run(arguments, directory, "--json", "-").stdout)
            assert total(intervals, "tx_wire_bytes") == whole["total"]["tx_wire_bytes"], step
            assert all(interval["hosts"] == 2 for interval in intervals[:-1]), step


def check_moments(arguments):
    """A late rank and a port's errors: where they were, and nowhere else."""
    with tempfile.TemporaryDirectory() as directory:
        truth = generate(arguments, ["--nodes", "4", "--iterations", "24", "--buckets", "4", "--network-times", "--late", "9:40:8-15",
                                     "--port-errors", "1:3:symbol_error:30-45"], directory)
        document = json.loads(run(arguments, directory, "--every", "8s", "--json", "-").stdout)
        late = [row for row in truth.operations if row["late_rank"]]
        assert late, "no operation has a late rank"
        start_ns = truth.job["start_realtime_ns"]
        named = 0
        for interval in document["intervals"]:
            begin_ns, end_ns = bounds_of(interval)
            n_late = sum(begin_ns <= start_ns + row["first_ns"] and start_ns + row["first_ns"] + row["spread_ns"] < end_ns for row in late)
            if interval["late_ranks"]:
                assert n_late, f"a late rank in interval {interval['interval']}"
            if n_late >= 3:
                found = (interval["late_ranks"], interval["late_rank"], interval["late_host"], interval["late_pid"])
                assert found == (1, 9, truth.host(1), truth.ranks[9]["pid"]), f"interval {interval['interval']}: {found}"
                assert abs(interval["late_median_ns"] - 40_000_000) < 20_000_000, interval
                named += 1
            errors_ns = start_ns + 30 * S, start_ns + 45 * S
            if interval["port_incidents"]:
                assert begin_ns < errors_ns[1] + S and end_ns > errors_ns[0] - S, f"a port incident in interval {interval['interval']}"
            if begin_ns >= errors_ns[0] and end_ns <= errors_ns[1]:
                assert interval["port_incidents"] == 1 and "mlx5_3" in interval["worst_incident"], interval
        assert named, "no interval has three collectives with a late rank"
        print(f"moments: the late rank in {named} intervals", flush=True)


def check_part(arguments):
    """A part of the time, and captures that are missing or damaged."""
    with tempfile.TemporaryDirectory() as directory:
        truth = generate(arguments, ["--nodes", "4", "--iterations", "12", "--damage", "1:missing", "--damage", "2:truncated"], directory)
        done = run(arguments, directory, "--every", "5s", "--json", "-", status=0)
        document = json.loads(done.stdout)
        assert done.stderr.count("\n") == 1 and "records before that are used" in done.stderr, f"each message once: {done.stderr}"
        assert document["intervals"][0]["hosts"] == 3, document["intervals"][0]
        assert document["intervals"][-1]["hosts"] == 2, "the truncated capture has nothing in the last interval"
        text = run(arguments, directory, "--every", "5s").stdout
        assert "recorded on 2 of 3 hosts" in text, text
        part = json.loads(run(arguments, directory, "--every", "5s", "--last", "8s", "--json", "-").stdout)
        assert part["end_realtime_ns"] - part["begin_realtime_ns"] == 8 * S and len(part["intervals"]) == 2, part
        for words in (["--every", "0.1s"], ["--every", "x"], ["--every", "5s", "--find", "x"], ["--every", "5s", "--against", directory]):
            done = run(arguments, directory, *words, status=2)
            assert not done.stdout and done.stderr, done
        del truth


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("recordings", nargs="*")
    arguments = parser.parse_args()
    for directory in arguments.recordings:
        check_recording(arguments, directory)
    check_part(arguments)
    check_step(arguments)
    check_moments(arguments)
    for name, (options, every_s) in COUNTED.items():
        check_counted(arguments, name, options, every_s)


if __name__ == "__main__":
    sys.exit(main())
