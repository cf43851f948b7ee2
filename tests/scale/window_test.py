#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report` of a part of generated jobs against their truth: a window's operations are the truth's operations of that time, `--find` has the
operation that ranks of a dead job hang in, `--job` reads one of two jobs as if it were alone.

window_test.py --collwire FILE --trace-gen FILE"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

from truth import Truth

S = 1_000_000_000
ELEMENT_BYTES = 2 # of the generator's datatype
WINDOWS_OF_A_JOB = 6
WINDOW_CASES = {
    "ring": ["--nodes", "2", "--iterations", "16"],
    "mixed": ["--nodes", "4", "--tp", "4", "--ep", "8", "--sharded", "--iterations", "16"],
    "times": ["--nodes", "2", "--iterations", "16", "--network-times", "--local-launches"],
    "pipeline": ["--nodes", "4", "--tp", "8", "--pp", "2", "--iterations", "16"],
    "skew": ["--nodes", "4", "--iterations", "16", "--skew", "constant:40", "--no-small"],
}
FIND_CASES = {
    "data": ["--nodes", "4", "--iterations", "10", "--die-at", "9:9"],
    "tensor": ["--nodes", "4", "--tp", "8", "--iterations", "10", "--die-at", "9:9"],
    "experts": ["--nodes", "4", "--tp", "8", "--ep", "4", "--sharded", "--iterations", "10", "--die-at", "9:9"],
    "late-call": ["--nodes", "2", "--iterations", "10", "--die-at", "9.5:3"],
}
OP_TYPES = {"AllReduce": "ALLREDUCE", "AllGather": "_ALLGATHER_BASE", "ReduceScatter": "_REDUCE_SCATTER_BASE"}


def report(arguments, *words):
    done = subprocess.run([arguments.collwire, "report", "--detail", "--json", "-", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: status {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)


def generate(arguments, options, directory):
    subprocess.run([arguments.trace_gen, "job", *options, "-o", directory], check=True, stdout=subprocess.DEVNULL)
    return Truth(os.path.join(directory, "truth.jsonl"))


def utc(ns):
    """With all nine digits."""
    return subprocess.run(["date", "-u", "-d", f"@{ns // S}", f"+%Y-%m-%dT%H:%M:%S.{ns % S:09}Z"], capture_output=True, text=True, check=True).stdout.strip()


def arrivals(truth, row):
    """CLOCK_REALTIME of its calls, by rank of the communicator."""
    return {rank: truth.realtime_ns(truth.node_of(row["comm"], rank), row["first_ns"] + after)
            for rank, after in enumerate(row["after_first_ns"]) if after is not None}


def check_window(arguments, name, truth, directory, begin_ns, end_ns):
    found = report(arguments, directory, "--from", utc(begin_ns), "--to", utc(end_ns))
    what = f"{name}, {(begin_ns - truth.job['start_realtime_ns']) / S:.3f} to {(end_ns - truth.job['start_realtime_ns']) / S:.3f} s"
    selected = found["selected"]
    assert (selected["from_realtime_ns"], selected["to_realtime_ns"]) == (begin_ns, end_ns), f"{what}: {selected}"
    comms = {row["hash"]: row["comm"] for row in truth.comms.values()}
    comm_of = {row["id"]: comms[row["hash"]] for row in found["communicators"]}
    collectives = {(comm_of[row["comm"]], row["called_realtime_ns"]): row for row in found["collectives"]}
    assert len(collectives) == len(found["collectives"]), f"{what}: two operations at one time"
    inside, edge, with_bytes = set(), set(), 0
    numbers, offsets = collections.Counter(), collections.defaultdict(set)
    for row in truth.operations:
        shape = truth.shapes[row["shape"]]
        if shape["what"] != "collective":
            continue
        calls = arrivals(truth, row)
        called = {rank: at for rank, at in calls.items() if begin_ns <= at < end_ns}
        key = (row["comm"], min(called.values(), default=0))
        if called and len(called) < len(calls):
            edge.add(key)
        if len(called) < len(calls):
            continue
        inside.add(key)
        operation = collectives.get(key)
        assert operation is not None, f"{what}: {key} is missing"
        assert operation["op"] == shape["op"] and operation["size_bytes"] == shape["size_bytes"], f"{what}: {key}: {operation}"
        # NCCL counts launches: without one (inside a node) the number is that of the window.
        numbers[operation["seq_base"]] += 1
        if operation["seq_base"] in ("launched", "creation"):
            assert operation["seq"] == row["seq"], f"{what}: {key} has number {operation['seq']}, the truth is {row['seq']}"
        else:
            offsets[row["comm"]].add(row["seq"] - operation["seq"])
        assert {call["rank"]: call["called_realtime_ns"] for call in operation["calls"]} == called, f"{what}: calls of {key}"
        # Its bytes are in a sample of the window, or in the first one after it.
        before_end_ns = 0 if row["end_ns"] is None else end_ns - max(truth.realtime_ns(node, row["end_ns"]) for node in truth.nodes)
        if before_end_ns < 0:
            continue
        traffic = truth.traffic[row["shape"], row["comm"], 0]
        if traffic["payload_bytes"]:
            with_bytes += 1
            assert operation["tx_payload_bytes"] == traffic["payload_bytes"], f"{what}: {key}: {operation['tx_payload_bytes']}, the truth is {traffic}"
            # A sample between two operations ends the stretch in which its bytes were counted.
            assert not operation["partial"] or before_end_ns < 2 * S, f"{what}: {key} is partial"
    assert not set(collectives) - inside - edge, f"{what}: not in the window: {sorted(set(collectives) - inside - edge)[:5]}"
    assert all(len(all_of) == 1 for all_of in offsets.values()), f"{what}: numbers are not in order: {offsets}"
    # Without operations on its edges sends are countable, too.
    sends = collections.Counter((comm_of[row["comm"]], row["src_rank"], row["dst_rank"]) for row in found["p2p"])
    expected, is_clean = collections.Counter(), not edge
    for pair, rows in truth.exchanges().items():
        for row in rows:
            at = list(arrivals(truth, row).values())
            n_inside = sum(begin_ns <= one < end_ns for one in at)
            is_clean = is_clean and n_inside in (0, len(at))
            expected[pair] += 1 if n_inside else 0
    if is_clean:
        assert sends == +expected, f"{what}: sends"
    return len(inside), numbers["launched"] + numbers["creation"], with_bytes, sum(expected.values()) if is_clean else 0, selected["blocks_left_out"]


def check_windows(arguments, name, options):
    with tempfile.TemporaryDirectory() as directory:
        truth = generate(arguments, options, directory)
        start_ns, length_ns = truth.job["start_realtime_ns"], truth.total["end_ns"]
        choose = random.Random(name)
        windows = [(start_ns + 16 * S, start_ns + 24 * S)] # between two iterations
        while len(windows) < WINDOWS_OF_A_JOB:
            begin_ns = start_ns + choose.randrange(2 * S, length_ns - 4 * S)
            windows.append((begin_ns, min(begin_ns + choose.randrange(3 * S, 9 * S), start_ns + length_ns)))
        sums = [sum(column) for column in zip(*(check_window(arguments, name, truth, directory, *window) for window in windows))]
        assert sums[0] > 20 and sums[1] > 20 and sums[2] > 5 and sums[4] > 0, f"{name}: the windows are of little: {sums}"
        print(f"{name}: {sums[0]} operations, {sums[1]} with NCCL's number, {sums[2]} with bytes, {sums[3]} sends; {sums[4]} blocks left out", flush=True)


def check_nothing(arguments):
    with tempfile.TemporaryDirectory() as directory:
        generate(arguments, ["--nodes", "2"], directory)
        for words, status in ((["--from", "2027-01-01T00:00:00Z"], 1), (["--to", "2025-01-01T00:00:00Z"], 1), (["--from", "never"], 2),
                              (["--last", "x"], 2), (["--from", "2026-01-01T00:00:05Z", "--to", "2026-01-01T00:00:04Z"], 2), (["--job", "1"], 1)):
            for verb in ("report", "diagnose"):
                done = subprocess.run([arguments.collwire, verb, directory, *words], capture_output=True, text=True, check=False)
                assert done.returncode == status and not done.stdout and done.stderr.count("\n") == 1, f"{verb} {words}: {done}"
                if words[0] in ("--from", "--to") and status == 1:
                    assert "2026-01-01T00:00:00" in done.stderr, f"{verb} {words}: the recording's range is missing: {done.stderr}"


def line_of(shape, comm, seq, rank):
    elements, n_ranks = shape["size_bytes"] // ELEMENT_BYTES, comm["n_ranks"]
    numel_in, numel_out = {"AllGather": (elements, elements * n_ranks), "ReduceScatter": (elements * n_ranks, elements)}.get(shape["op"], (elements, elements))
    return (f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq + 1}, OpType={OP_TYPES[shape['op']]}, NumelIn={numel_in}, "
            f"NumelOut={numel_out}, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.")


def check_find(arguments, name, options):
    with tempfile.TemporaryDirectory() as directory:
        truth = generate(arguments, options, directory)
        hung = [row for row in truth.operations if row["end_ns"] is None and truth.shapes[row["shape"]]["what"] == "collective"]
        assert hung, f"{name}: no collective hangs"
        n_found = 0
        for row in hung:
            comm, shape = truth.comms[row["comm"]], truth.shapes[row["shape"]]
            called = {rank for rank, after in enumerate(row["after_first_ns"]) if after is not None}
            rank = min(called)
            found = report(arguments, directory, "--find", line_of(shape, comm, row["seq"], rank))["operations"]
            fitting = {(one["communicator"], one["seq"]): one for one in found}
            one = fitting.get((comm["hash"], row["seq"]))
            assert one is not None, f"{name}: {comm['hash']} {row['seq']} is not among {sorted(fitting)}"
            assert one["position"] == "equal" and one["op"] == shape["op"], f"{name}: {one}"
            assert {state["rank"] for state in one["ranks"] if state["called"]} == called, f"{name}: called: {one['ranks']}"
            assert not any(state["ended"] for state in one["ranks"]), f"{name}: {one['ranks']}"
            if len(truth.comms) == 1:
                assert len(found) == 1, f"{name}: {found}"
            n_found += len(found)
            for absent in set(range(comm["n_ranks"])) - called:
                done = subprocess.run([arguments.collwire, "report", directory, "--json", "-", "--find", line_of(shape, comm, row["seq"], absent)],
                                      capture_output=True, text=True, check=False)
                others = {(other["communicator"], other["seq"]) for other in json.loads(done.stdout)["operations"]}
                assert (comm["hash"], row["seq"]) not in others, f"{name}: rank {absent} has not called {row['seq']}"
            # Another place is said, and is no equal one.
            elsewhere = report(arguments, directory, "--find", line_of(shape, comm, row["seq"] + 1000, rank))["operations"]
            assert elsewhere and all(one["position"] == "earlier" for one in elsewhere), f"{name}: {elsewhere}"
            # Another size and a rank that does not exist are nobody's.
            bad_lines = [line_of(shape, comm, row["seq"], rank).replace("NumelIn=", "NumelIn=1").replace("NumelOut=", "NumelOut=1"),
                         line_of(shape, comm, row["seq"], comm["n_ranks"] + 5000)]
            if len(truth.comms) == 1: # no sends: an earlier place is none, if the line is of no timeout
                bad_lines.append(line_of(shape, comm, row["seq"] + 1000, rank).partition("timeout: ")[2].partition(" ran")[0])
            for bad in bad_lines:
                done = subprocess.run([arguments.collwire, "report", directory, "--find", bad], capture_output=True, text=True, check=False)
                assert done.returncode == 1 and "no operation can be it" in done.stdout, f"{name}: {bad}: {done.stdout}"
        print(f"{name}: {len(hung)} operation(s) that hang, {n_found} found", flush=True)


def check_jobs(arguments):
    with tempfile.TemporaryDirectory() as directory:
        both = os.path.join(directory, "both")
        os.mkdir(both)
        alone, jobs = {}, {}
        for seed in (1, 2):
            own = os.path.join(directory, str(seed))
            truth = generate(arguments, ["--nodes", "2", "--seed", str(seed), "--iterations", str(2 + seed)], own)
            for file in sorted(os.listdir(own)):
                if file.endswith(".cwc"):
                    shutil.copy(os.path.join(own, file), os.path.join(both, f"{seed}-{file}"))
            jobs[truth.job["slurm_job"]] = len(truth.ranks)
            alone[truth.job["slurm_job"]] = report(arguments, own)
        listed = {row["job"]: (row["ranks_seen"], row["ranks_expected"]) for row in report(arguments, both)["jobs"]}
        assert listed == {f"slurm {job}": (n, n) for job, n in jobs.items()}, listed
        for job, expected in alone.items():
            one = report(arguments, both, "--job", str(job))
            for document in (one, expected):
                document.pop("captures")
            assert one == expected, f"job {job} differs from its own report"
        print(f"jobs: {sorted(listed)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    arguments = parser.parse_args()
    for name, options in WINDOW_CASES.items():
        check_windows(arguments, name, options)
    for name, options in FIND_CASES.items():
        check_find(arguments, name, options)
    check_nothing(arguments)
    check_jobs(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
