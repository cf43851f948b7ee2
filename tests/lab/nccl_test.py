#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL on four nodes over kernel RDMA, sockets and a network plugin: the bytes of each operation on each connection equal the log of the
test double of CUDA, the jobs' own logs, and packet captures. Several recorders can record one job at once: each has its own judge.

nccl_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,CASE+CASE,...|few|all]"""

import argparse
import glob
import os
import sys

import lab_harness as harness
import nccl_run
import plugin_test
from nccl_run import library_of

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl"), os.path.join(harness.HERE, "truth")]

import cases  # noqa: E402
import control_truth  # noqa: E402
import identity_truth as truth  # noqa: E402
import join_truth  # noqa: E402
import late_truth as late  # noqa: E402
import nccl_log  # noqa: E402
import nccl_packets as packets  # noqa: E402
import transport_truth  # noqa: E402


def chosen(arguments):
    """The cases of each job that this version runs."""
    version = tuple(int(part) for part in arguments.nccl.split("."))
    jobs = cases.jobs_of({"all": cases.ALL, "few": cases.FEW}.get(arguments.cases) or arguments.cases)
    return [of_job for of_job in ([case for case in of_job if case.runs_on(version)] for of_job in jobs) if of_job]


def sources_of(report):
    """The byte sources of what was sent."""
    return {part["source"] for kind in ("collectives", "p2p") for operation in report[kind] for part in operation["parts"]
            if part["direction"] == "send" and part["transport"] != "local" and part["payload_bytes"]}


def check_connections(recorded):
    logs = {}
    for process, path in recorded.of_processes("nccl.*.log").items():
        with open(path, encoding="utf-8", errors="replace") as log:
            logs[process] = log.read()
    return nccl_log.compare(recorded.report, logs)


def check_case(case, out, kernel):
    """(report, problems)"""
    recorded = nccl_run.Recorded(case, out)
    problems = plugin_test.judge(recorded) if case.plugin else judge_late(recorded) if case.late_s else judge_whole(recorded, kernel)
    return recorded.report, [f"{case.name}: {problem}" for problem in problems]


def judge_whole(recorded, kernel):
    """A job that was recorded from its start to its end."""
    case, report = recorded.case, recorded.report
    told, problems = check_connections(recorded)
    line, of_join = join_truth.judge(case, report, recorded.jobs, recorded.doubles, recorded.is_local, recorded.processes,
                                     harness.losses(report, kernel))
    control, of_control = control_truth.compare(report, recorded.files("sent.*"),
                                                ("bootstrap", "proxy") if case.over_sockets else control_truth.JUDGED)
    print(f"{line}; by {sources_of(report)}; {told} connections as NCCL prints them; {control}", flush=True)
    problems += of_join + of_control
    sent = sum(truth.Truth(recorded.doubles, recorded.is_local).sent.values())
    problems += transport_truth.problems_of(report, sent, case.over_sockets, case.source)
    problems += transport_truth.problems_of_headers(report, case.fewest_headers)
    problems += transport_truth.problems_of_ways(report, case.over_sockets, int(case.environment.get("NCCL_IB_QPS_PER_CONNECTION", "1")), case.nics)
    # A socket that opened and closed between two samples was never measured.
    if sources_of(report) - ({"derived"} if case.over_sockets else set()) != {case.source}:
        problems.append(f"byte sources {sources_of(report)}, not {case.source}")
    return problems


def judge_late(recorded):
    """Recorders that attached to the running job."""
    case, report, doubles, is_local, ready_ns = recorded.case, recorded.report, recorded.doubles, recorded.is_local, recorded.ready_ns
    _, problems = check_connections(recorded)
    logs = {process: log for log, process in enumerate(recorded.processes)}
    compared, of_collectives = late.compare(report, doubles, logs, ready_ns, is_local)
    sends, of_sends = late.compare_sends(report, doubles, ready_ns, is_local)
    problems += of_collectives + of_sends
    identity = report["identity"]
    in_flight, not_exact = late.most_under_way(doubles, ready_ns, is_local), identity["inferred"] + identity["process"]
    if not_exact > in_flight:
        problems.append(f"{not_exact} bytes are not exact, at most {in_flight} were in flight when the recorders started: {identity}")
    if case.source not in sources_of(report):
        problems.append(f"byte sources {sources_of(report)}, not {case.source}")
    if any(finding["kind"] == "bytes_differ" for finding in report["findings"]):
        problems.append("finding bytes_differ, although the double has the reported bytes")
    print(f"{case.name}: {compared} collectives of a rank and {sends} sends compared, {len(problems)} problems; recorders started over "
          f"{(max(ready_ns) - min(ready_ns)) / 1e9:.1f} s; {not_exact} bytes not exact, up to {in_flight} in flight; identity {identity}", flush=True)
    return problems + ([] if compared >= case.fewest_figures and sends else [f"only {compared} collectives and {sends} sends compared"])


def check(arguments, out):
    jobs = chosen(arguments)
    nccl_run.run(out, arguments.kernel, library_of(arguments.nccl), jobs, "--pcap", "--nics", str(max(case.nics for of_job in jobs for case in of_job)))
    judge(jobs, out, arguments.kernel)


def torn(out):
    """Failed tries that jobs/nccl.py repeated."""
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(out, "node0", "*.torn.*")))
    if names:
        print(f"run again, since rdma_rxe tore an entry: {names}")
    return names


def report_of_torn(name, out):
    captures = sorted(glob.glob(os.path.join(out, "node*", name, "capture")))
    return harness.report_of(captures, os.path.join(out, f"{name}.json"), quiet=True, expected=(0, harness.LOST))


def judge(jobs, out, kernel):
    reports, problems = [], []
    for case in (case for of_job in jobs for case in of_job):
        report, of_case = check_case(case, out, kernel)
        reports.append((case, report))
        problems += of_case
    problems += packets.compare(out, reports, [report_of_torn(name, out) for name in torn(out)])
    assert not problems, "\n".join(problems[:40])


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--cases", default="few", metavar="CASE,CASE+CASE,...", help=f"{', '.join(cases.CASES)}; few: {cases.FEW}; all")
    parser.add_argument("--judge", metavar="DIR", help="judge the results in DIR, and run nothing")
    arguments = parser.parse_args()
    if arguments.judge:
        judge(chosen(arguments), arguments.judge, arguments.kernel)
        return
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
