#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL on four nodes whose clocks are 3 ms, 2 s and an hour apart, drift by 50 ppm, and of which one is set while the job runs, under two
recorders: as by default, and with --network-times. In the report over the captures the truth is inside the bounds of each node's clock in 99.9 % of
windows, and whenever a last rank is named, that rank called last. The truth comes from questions and answers between the nodes (jobs/clocks.py): each has
a bound of its own.

clocks_test.py [--kernel SERIES] [--nccl VERSION] [--judge DIR]"""

import argparse
import collections
import json
import os
import sqlite3

import lab_harness as harness
import nccl_run

import cases  # noqa: E402  (nccl_run sets the path)

CASES = "clocks+clocks-times"
APART_NS = (0, 3_000_000, 2_000_000_000, 3_600_000_000_000)
DRIFT_PPM = (0, 50, -50, 50)
# Of a realtime clock, seconds after the start of the job.
STEP_NODE, STEP_AFTER_S, STEP_NS = 1, 60, -1_500_000_000
# Rates that the nodes' clocks may have beside those that they were given, for answers some seconds from a moment.
SPARE_PPM = 20
NEAR_NS = 20_000_000_000
LEAST_SHARE = 0.999
# One moment of two clocks that are read one after the other.
READ_NS = 200_000


class Truth:
    """The clock of a node against that of node 0."""

    def __init__(self, out, node):
        self.node = node
        self.answers = []
        if node != 0:
            with open(os.path.join(out, f"node{node}", "clocks.jsonl"), encoding="ascii") as log:
                self.answers = [json.loads(line) for line in log if line.endswith("}\n")]

    def of_node0(self, node0_ns):
        """Bounds of what this node's monotonic clock showed when node 0's showed that."""
        if self.node == 0:
            return node0_ns, node0_ns
        least, most = [], []
        for answer in self.answers:
            elapsed_ns = node0_ns - answer["node0_ns"]
            if abs(elapsed_ns) < NEAR_NS:
                spare_ns = READ_NS + abs(elapsed_ns) * SPARE_PPM // 1_000_000
                moved_ns = elapsed_ns + int(elapsed_ns * (DRIFT_PPM[self.node] - DRIFT_PPM[0]) / 1e6)
                least.append(answer["sent_ns"] + moved_ns - spare_ns)
                most.append(answer["got_ns"] + moved_ns + spare_ns)
        assert least, f"node{self.node}: no answer near {node0_ns}"
        assert max(least) <= min(most), f"node{self.node}: the answers contradict each other"
        return max(least), min(most)

    def to_node0(self, shown_ns):
        """Bounds of what node 0's clock showed when this node's showed that."""
        if self.node == 0:
            return shown_ns, shown_ns
        nearest = min(self.answers, key=lambda answer: abs(answer["got_ns"] - shown_ns))
        guess_ns = shown_ns + nearest["node0_ns"] - nearest["got_ns"]
        least, most = self.of_node0(guess_ns)
        return guess_ns + shown_ns - most - READ_NS, guess_ns + shown_ns - least + READ_NS


class Judge:
    def __init__(self, case, out):
        self.case, self.out, self.problems = case, out, []
        captures = [os.path.join(out, f"node{node}", case.name, "capture") for node in range(nccl_run.NODES)]
        self.tables = os.path.join(out, f"{case.name}.sqlite")
        if os.path.exists(self.tables):
            os.remove(self.tables)
        self.report = harness.report_of(captures, os.path.join(out, f"{case.name}.json"), "--topology", os.path.join(out, "topology.json"), "--detail",
                                        "--sqlite", self.tables, quiet=True, expected=(0, harness.LOST))
        self.truths = {f"node{node}": Truth(out, node) for node in range(nccl_run.NODES)}

    def run(self):
        self.windows()
        self.last_ranks()
        self.waiting()
        return [f"{self.case.name}: {problem}" for problem in self.problems]

    def windows(self):
        counts, widths = collections.Counter(), []
        for clock in self.report["clocks"]:
            if clock["calibration"] not in ("reference", "bounded"):
                self.problems.append(f"{clock['host']} is not calibrated: {clock['calibration']}")
            for window in clock["windows"] if clock["calibration"] == "bounded" else ():
                counts[self.judge_window(clock, window)] += 1
                widths.append(window["most_ns"] - window["least_ns"])
        if self.report["clock_contradictions"]:
            self.problems.append(f"contradictions: {self.report['clock_contradictions'][:3]}")
        total = sum(counts.values())
        if total < 3 * 6:
            self.problems.append(f"only {total} windows")
        elif counts["outside"] > (1 - LEAST_SHARE) * total:
            self.problems.append(f"the truth is outside the bounds in {counts['outside']} of {total} windows")
        widths.sort()
        errors = {clock["host"]: (clock["typical_error_ns"], clock["worst_error_ns"]) for clock in self.report["clocks"]}
        drifts = {clock["host"]: (clock["drift_least_ppb"], clock["drift_most_ppb"]) for clock in self.report["clocks"]}
        print(f"{self.case.name}: {dict(counts)} of {total} windows; widths {widths[0] / 1e6:.3f} to {widths[-1] / 1e6:.3f} ms, "
              f"median {widths[len(widths) // 2] / 1e6:.3f} ms; errors {errors}; drift {drifts}", flush=True)

    def judge_window(self, clock, window):
        """`inside`: the truth with its own bound; `overlaps`: it can be inside."""
        node0 = self.truths[clock["reference"]].to_node0(window["reference_ns"])
        of_host = self.truths[clock["host"]]
        least_ns = of_host.of_node0(node0[0])[0]
        most_ns = of_host.of_node0(node0[1])[1]
        if least_ns > window["most_ns"] or most_ns < window["least_ns"]:
            self.problems.append(f"{clock['host']} at {window['reference_ns']}: {window['least_ns']} to {window['most_ns']}, "
                                 f"the truth is {least_ns} to {most_ns}")
            return "outside"
        return "inside" if window["least_ns"] <= least_ns and most_ns <= window["most_ns"] else "overlaps"

    def last_ranks(self):
        """By SQLite and by the calls in the JSON, which have each rank's own clock."""
        calls = {(row["comm"], row["seq"]): row["calls"] for row in self.report["collectives"] if row.get("calls")}
        with sqlite3.connect(self.tables) as tables:
            rows = tables.execute("SELECT comm, seq, last_rank FROM operations WHERE kind = 'collective'").fetchall()
        claimed = wrong = 0
        host_of = {(number, rank["rank"]): rank["host"] for number, comm in enumerate(self.report["communicators"]) for rank in comm["ranks"]}
        for comm, seq, last_rank in rows:
            if last_rank is None or (comm, seq) not in calls:
                continue
            claimed += 1
            at = {call["rank"]: self.truths[host_of[comm, call["rank"]]].to_node0(call["called_ns"]) for call in calls[comm, seq]}
            if any(at[rank][0] > at[last_rank][1] for rank in at if rank != last_rank):
                wrong += 1
                self.problems.append(f"communicator {comm}, operation {seq}: rank {last_rank} is named as the last one; the truth is {at}")
        print(f"{self.case.name}: a last rank is named in {claimed} of {len(rows)} collectives, wrongly in {wrong}", flush=True)
        if self.case.record and not claimed:
            self.problems.append("no last rank is named at all")

    def waiting(self):
        """A collective waited for its last rank, or transferred: claimed only where the truth of the clocks allows it."""
        possible, claimed = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
        for row in self.report["collectives"]:
            if row["end_known"] is None or not row.get("calls"):
                continue
            ranks = self.report["communicators"][row["comm"]]["ranks"]
            at = [self.truths[ranks[call["rank"]]["host"]].to_node0(call["called_ns"]) for call in row["calls"]]
            least_ns = max(0, max(least for least, _ in at) - min(most for _, most in at))
            most_ns = max(most for _, most in at) - min(least for least, _ in at)
            of = possible[row["comm"], row["op"], row["size_bytes"]]
            of["waited"] += 2 * most_ns >= row["least_duration_ns"]
            of["transferred"] += 2 * least_ns < row["most_duration_ns"]
        for row in self.report["waiting"]:
            claimed[row["comm"], row["op"], row["size_bytes"]].update({name: row[name] for name in ("waited", "transferred", "unclear")})
        for key, of in claimed.items():
            if of["waited"] > possible[key]["waited"] or of["transferred"] > possible[key]["transferred"]:
                self.problems.append(f"waiting, {key}: {dict(of)}, the truth allows {dict(possible[key])}")
        total = sum(claimed.values(), collections.Counter())
        print(f"{self.case.name}: {total['waited']} collectives waited for the last rank, {total['transferred']} transferred, {total['unclear']} unclear",
              flush=True)
        if not total["waited"] + total["transferred"]:
            self.problems.append("no collective has a class")


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--judge", metavar="DIR", help="judge the results in DIR, and run nothing")
    arguments = parser.parse_args()
    jobs = cases.jobs_of(CASES)

    def judge_all(out):
        problems = [problem for case in jobs[0] for problem in Judge(case, out).run()]
        assert not problems, "\n".join(problems[:40])

    def check(arguments, out):
        nccl_run.run(out, arguments.kernel, nccl_run.library_of(arguments.nccl), jobs, "--env",
                     f"CLOCK_APART_NS={','.join(map(str, APART_NS))}", "--env", f"CLOCK_DRIFT_PPM={','.join(map(str, DRIFT_PPM))}", "--env",
                     f"CLOCK_STEP={STEP_NODE}:{STEP_AFTER_S}:{STEP_NS}", job="clocks.py")
        judge_all(out)

    if arguments.judge:
        judge_all(arguments.judge)
    else:
        harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
