# SPDX-License-Identifier: Apache-2.0
"""The stream correlator beside the one that reads whole recordings: the same collectives with the same arguments, calls and bytes, and as many sends and
receives."""

import collections
import json
import os
import subprocess

NUMBER_GUESSED = 16
OLDEST = 2, 24
CLOCK_SLACK_NS = 10_000


def of_report(report):
    hashes = {row["id"]: row["hash"] for row in report["communicators"]}
    collectives, pairs = {}, collections.Counter()
    for row in report["collectives"]:
        if row["replay"] in (None, 0):
            collectives[hashes[row["comm"]], row["seq"]] = row
    for row in report["p2p"]:
        if row["replay"] in (None, 0) and row["src_rank"] != row["dst_rank"]:
            pairs[hashes[row["comm"]], row["src_rank"], row["dst_rank"]] += 1
    return collectives, pairs


def rows_of(stream, paths):
    done = subprocess.run([stream, "--rows", *paths], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def bytes_of_pairs(report, hashes):
    """Of pairs of ranks all of whose transfers are exact and whole, but for the communicators of these hashes."""
    names = {row["id"]: row["hash"] for row in report["communicators"]}
    sums, unknown = collections.Counter(), set()
    for row in report["p2p"]:
        pair = names[row["comm"]], row["src_rank"], row["dst_rank"]
        if row["rung"] != "exact" or row["partial"] or row["replay"] is not None or row["tx_payload_bytes"] is None or pair[0] in hashes:
            unknown.add(pair)
        else:
            sums[pair] += row["tx_payload_bytes"]
    return {pair: n for pair, n in sums.items() if pair not in unknown}


def is_comparable(report):
    """The stream has no numbers of its own before NCCL 2.24, and none without launches."""
    return bool(report["nccl"]) and all(image["version"] and tuple(map(int, image["version"].split("."))) >= OLDEST
                                        and image["rungs"]["operations"] == "exact" for image in report["nccl"])


def compare(report, rows):
    """What is compared, in words, and the differences. A communicator that was joined late, without NCCL's own count, is left out."""
    guessed = {row["hash"] for row in rows if row["lacks"] & NUMBER_GUESSED}
    guessed |= {comm["hash"] for comm in report["communicators"]
                if any(row["comm"] == comm["id"] and row["seq_base"] not in ("creation", "launched") for row in report["collectives"])}
    expected, pairs = of_report(report)
    expected = {key: row for key, row in expected.items() if key[0] not in guessed}
    pairs = collections.Counter({key: n for key, n in pairs.items() if key[0] not in guessed})
    rows = [row for row in rows if row["hash"] not in guessed]
    found = {(row["hash"], row["number"]): row for row in rows if row["source"] < 0}
    faults, n = [], 0
    if sorted(found) != sorted(expected):
        faults.append(f"collectives {sorted(set(found) ^ set(expected))[:8]} are in one of the two")
    for key in sorted(set(found) & set(expected)):
        row, op = found[key], expected[key]
        figures = {"op": (row["op"], op["op"]), "size": (row["size_bytes"], op["size_bytes"]), "calls": (row["calls"], op["ranks"])}
        # The report interpolates between readings of a clock, the stream has the last one.
        if op["called_realtime_ns"] and abs(row["first_call_ns"] - op["called_realtime_ns"]) > CLOCK_SLACK_NS:
            figures["called"] = row["first_call_ns"], op["called_realtime_ns"]
        # Exact of both: NCCL's own operations.
        if op["tx_payload_bytes"] is not None and op["rung"] == "exact" and not op["partial"] and row["lacks"] == 0:
            figures["bytes"] = row["payload_bytes"], op["tx_payload_bytes"]
        for name, (ours, theirs) in figures.items():
            n += 1
            if ours != theirs:
                faults.append(f"{key}: {name} {ours} of the stream, {theirs} of the report (lacks {row['lacks']})")
    counted = collections.Counter((row["hash"], row["source"], row["destination"]) for row in rows if row["source"] >= 0 and row["source"] != row["destination"])
    for pair, expected_bytes in bytes_of_pairs(report, hashes=guessed).items():
        sends = [row for row in rows if (row["hash"], row["source"], row["destination"]) == pair]
        n += 1
        if all(row["lacks"] == 0 for row in sends) and sum(row["payload_bytes"] for row in sends) != expected_bytes:
            faults.append(f"transfers of {pair}: {sum(row['payload_bytes'] for row in sends)} bytes of the stream, {expected_bytes} of the report")
    if counted != pairs:
        faults.append(f"transfers {counted - pairs} of the stream alone, {pairs - counted} of the report alone")
    return f"{len(found)} collectives, {sum(counted.values())} transfers, {n} figures, {len(faults)} different", faults


def check(collwire, report, captures):
    """The stream has what this report of these captures has: a difference is printed, and fails with COLLWIRE_FULL=1. `collwire`: the program, with its
    build folder around it."""
    stream = os.path.join(os.path.dirname(collwire), "tools", "bench", "collwire-bench-stream")
    if not os.path.exists(stream) or not is_comparable(report):
        return
    line, faults = compare(report, rows_of(stream, captures))
    if faults:
        print(f"the stream correlator differs: {line}: {faults[:10]}", flush=True)
    assert not faults or os.environ.get("COLLWIRE_FULL") != "1", "the stream correlator differs (above)"
