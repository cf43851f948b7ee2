# SPDX-License-Identifier: Apache-2.0
"""NCCL's own count of collectives: a report of the second half of a recording numbers them as the report of the whole, which counts from the creation.
Of communicators that call nothing that NCCL does not count."""

import collections
import json
import subprocess
import time

S = 1_000_000_000
LOST = 5
FIRST_WITH_OWN_COUNT = (2, 26)  # before it counts communicators that share connections, also those that have ended


def utc(ns):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // S)) + f".{ns % S:09}Z"


COUNTED = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")


def collectives_of(report):
    """By communicator's hash and size: collectives in order."""
    comms = {row["id"]: (row["hash"], row["n_ranks"]) for row in report["communicators"]}
    found = collections.defaultdict(list)
    for row in report["collectives"]:
        if not row["replay"]:
            found[comms[row["comm"]]].append(row)
    return found


def is_counted(row):
    return row["op"] in COUNTED and row["size_bytes"] and not row["captured"]


def compare(collwire, capture, report, version, must_have_numbers):
    """`report`: of the whole capture. Returns (how many numbers were compared, problems)."""
    if version < FIRST_WITH_OWN_COUNT:
        return 0, []
    whole = {comm: rows for comm, rows in collectives_of(report).items() if all(row["seq_base"] == "creation" for row in rows)}
    calls = sorted(row["called_realtime_ns"] for rows in whole.values() for row in rows)
    if len(calls) < 4:
        return 0, []
    from_ns = calls[len(calls) // 2]
    done = subprocess.run([collwire, "report", capture, "--from", utc(from_ns), "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, LOST), f"collwire report --from: {done.returncode}: {done.stderr}"
    compared, problems = 0, []
    for comm, rows in collectives_of(json.loads(done.stdout)).items():
        of_whole = whole.get(comm, [])
        bases = {row["seq_base"] for row in rows}
        # Calls are aligned with those that a launch numbers. Without one their numbers are not NCCL's.
        if not all(is_counted(row) for row in of_whole) or "launched" not in bases or bases - {"launched", "aligned"}:
            continue
        # Both end with the same one.
        for ours, theirs in zip(reversed(rows), reversed(of_whole)):
            compared += 1
            if (ours["op"], ours["seq"]) != (theirs["op"], theirs["seq"]):
                problems.append(f"{comm}: {ours['op']} is number {ours['seq']} in a part of the recording, {theirs['op']} {theirs['seq']} in the whole")
    if must_have_numbers and not compared:
        problems.append("no collective of a part of the recording has NCCL's number")
    return compared, problems
