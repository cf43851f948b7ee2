#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Posts of official NCCL in slices, on four nodes over kernel RDMA: the report's bytes are those of operations and equal the log of the test double of
CUDA. All that were compared equal the posts of slices, as often as the schedule says. The driver library has breakpoints in slices only, by a look at the
processes' memory.

posts_slices_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,...]"""

import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run
import nccl_test

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl")]

import cases  # noqa: E402
import identity_truth as truth  # noqa: E402

KERNEL = "6.1"
# Of an emulated node whose only CPU the ranks keep busy: until the recorder acts on a time that is due.
LATE_NS = 4_000_000_000
FEWEST_LOOKS = 20
FEWEST_COMPARED = 8


def records_of(capture, kind):
    dumped = subprocess.run([harness.COLLWIRE, "dump", "--kind", kind, capture], capture_output=True, text=True, check=True).stdout
    return [record for record in map(json.loads, dumped.splitlines()) if record.get("kind") == kind]


def changes_of(capture):
    """The changes in time order, each once: segments repeat the last one."""
    return list({record["time_ns"]: record for record in records_of(capture, "post_slice")}.values())


def check_schedule(changes, on_ns, period_ns, where):
    """Slices are as long and as often as was asked for."""
    problems, starts = [], []
    for now, then in zip(changes, changes[1:]):
        if now["counted_name"] == "slice":
            starts.append(now["time_ns"])
            length_ns = then["time_ns"] - now["time_ns"]
            if then["counted_name"] == "paused" and not on_ns <= length_ns <= on_ns + LATE_NS:
                problems.append(f"{where}: a slice of {length_ns / 1e9:.2f} s")
    paused = [record["time_ns"] for record in changes if record["counted_name"] == "paused"]
    follow = [(start, min((next_ns for next_ns in starts if next_ns > start), default=None)) for start in starts]
    for start, later in follow:
        # The next one without a time in between at which everything had to be counted.
        if later and any(start < time < later for time in paused) and not any(
                record["counted_name"] == "all" and start < record["time_ns"] < later for record in changes):
            if not period_ns - LATE_NS <= later - start <= period_ns + 2 * LATE_NS:
                problems.append(f"{where}: {(later - start) / 1e9:.2f} s from slice to slice")
    return problems + ([] if len(starts) > 1 and paused else [f"{where}: {len(starts)} slices and {len(paused)} pauses"])


def check_traps(changes, looks, where):
    """(looks in slices, looks in pauses, problems). A look counts if it lies between two changes as a whole."""
    in_slices = in_pauses = 0
    problems = []
    for now, then in zip(changes, changes[1:]):
        is_paused = now["counted_name"] == "paused"
        # A record of a pause has the time before the removal, others that after the placing.
        begin_ns = now["time_ns"] + (now["change_ns"] if is_paused else 0)
        end_ns = then["time_ns"] - (0 if then["counted_name"] == "paused" else then["change_ns"])
        for look in looks:
            if not (begin_ns <= look["begin_ns"] and look["end_ns"] <= end_ns):
                continue
            in_pauses += is_paused
            in_slices += not is_paused
            if (look["traps"] == 0) != is_paused:
                problems.append(f"{where}: {look['traps']} breakpoints while posts are {'paused' if is_paused else 'counted'}, at {look['begin_ns']}")
    if min(in_slices, in_pauses) < FEWEST_LOOKS:
        problems.append(f"{where}: {in_slices} looks at the memory in slices, {in_pauses} in pauses")
    return in_slices, in_pauses, problems


def judge(recorded):
    case, report = recorded.case, recorded.report
    problems = nccl_test.judge_whole(recorded, KERNEL)
    verified = report["identity"]["verified"]
    print(f"{case.name}: {json.dumps({name: value for name, value in verified.items() if name != 'differences'})}", flush=True)
    if verified["connections_differ"] or verified["differences"]:
        problems.append(f"posts differ: {verified['differences'][:4]}")
    problems += [finding["what"] for finding in report["findings"] if finding["kind"] in ("posts_differ", "bytes_differ")]
    if verified["connections_equal"] < FEWEST_COMPARED or not 0 < verified["verified_bytes"] < verified["derived_bytes"]:
        problems.append("too little was verified")
    if verified["queue_pairs_not_counted"] or verified["not_compared"].keys() - {"no_whole_operation", "shared_queue_pairs"}:
        problems.append(f"not compared: {verified['not_compared']}, {verified['queue_pairs_not_counted']} queue pairs")
    if verified["derived_bytes"] != report["identity"]["by_source"]["derived"]:
        problems.append(f"{verified['derived_bytes']} derived bytes, {report['identity']['by_source']}")
    on_ns, period_ns = verified["on_ns"], verified["period_ns"]
    for capture in recorded.captures:
        node = os.path.basename(os.path.dirname(os.path.dirname(capture)))
        changes = changes_of(capture)
        problems += check_schedule(changes, on_ns, period_ns, node)
        looks = truth.lines_of(os.path.join(recorded.out, node, case.job_name, "traps"))
        in_slices, in_pauses, of_traps = check_traps(changes, looks, node)
        problems += of_traps
        ways = {counted: [record["change_ns"] / 1e6 for record in changes if record["counted_name"] == counted] for counted in ("slice", "paused")}
        print(f"{node}: {len(ways['slice'])} slices; {in_slices} looks in slices, {in_pauses} in pauses; ms to place {max(ways['slice'], default=0):.1f}, "
              f"to remove {max(ways['paused'], default=0):.1f}", flush=True)
    return problems


if __name__ == "__main__":
    nccl_run.main(judge, ",".join(cases.SLICES))
