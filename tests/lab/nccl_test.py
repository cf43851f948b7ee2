#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL over kernel RDMA and sockets on four nodes: which collective put how many bytes on which connection, against the log of
the test double of CUDA, the jobs' own logs, and packet captures.

nccl_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,...|few|all]"""

import argparse
import glob
import os
import subprocess
import sys

import lab_harness as harness

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl"), os.path.join(harness.HERE, "truth")]

import cases  # noqa: E402
import control_truth  # noqa: E402
import identity_truth as truth  # noqa: E402
import join_truth  # noqa: E402
import late_truth as late  # noqa: E402
import nccl_log  # noqa: E402
import nccl_packets as packets  # noqa: E402
import transport_truth  # noqa: E402

NODES = 4
DOUBLE = os.path.join(harness.ROOT, "build", "release", "tests", "cuda_double")
BOOT_S, CASE_S = 300, 600


def library_of(version):
    fetched = subprocess.run([os.path.join(harness.ROOT, "tools", "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        # Not a fault of this machine's lab: the registry is not reached.
        print(f"skip: {fetched.stderr.strip()}")
        sys.exit(harness.SKIPPED)
    return fetched.stdout.strip()


def chosen(arguments):
    names = {"all": cases.ALL, "few": cases.FEW}.get(arguments.cases) or arguments.cases.split(",")
    version = tuple(int(part) for part in arguments.nccl.split("."))
    return [case for case in (cases.CASES[name] for name in names) if case.runs_on(version)]


def sources_of(report):
    """How the bytes were known that were sent."""
    return {part["source"] for kind in ("collectives", "p2p") for operation in report[kind] for part in operation["parts"]
            if part["direction"] == "send" and part["transport"] != "local" and part["payload_bytes"]}


def check_connections(case, out, report):
    logs = {}
    for node in range(NODES):
        for rank in range(node * case.ranks_per_node, (node + 1) * case.ranks_per_node):
            directory = os.path.join(out, f"node{node}", case.name)
            with open(os.path.join(directory, f"nccl.{rank}.log"), encoding="utf-8", errors="replace") as log:
                logs[(f"node{node}", truth.lines_of(os.path.join(directory, f"job.{rank}"))[0]["pid"])] = log.read()
    return nccl_log.compare(report, logs)


def check_case(case, out, kernel):
    captures = sorted(glob.glob(os.path.join(out, "node*", case.name, "capture")))
    report = harness.report_of(captures, os.path.join(out, f"{case.name}.json"), "--topology", os.path.join(out, "topology.json"),
                               "--detail", quiet=True, expected=(0, harness.LOST))
    paths = sorted(glob.glob(os.path.join(out, "node*", case.name, "job.*")))
    jobs = [truth.lines_of(path) for path in paths]
    processes = [(os.path.relpath(path, out).split(os.sep)[0], job[0]["pid"]) for path, job in zip(paths, jobs)]
    doubles = [truth.lines_of(path) for path in sorted(glob.glob(os.path.join(out, "node*", case.name, "double.*")))]
    told, not_told = check_connections(case, out, report)
    is_local = truth.same_node(jobs, case.ranks_per_node)
    not_told = [f"{case.name}: {problem}" for problem in not_told]
    if case.late_s:
        return report, not_told + [f"{case.name}: {problem}" for problem in check_late(case, out, report, doubles, is_local)]
    line, problems = join_truth.judge(case, report, jobs, doubles, is_local, processes, harness.losses(report, kernel))
    control, of_control = control_truth.compare(report, sorted(glob.glob(os.path.join(out, "node*", case.name, "sent.*"))),
                                                ("bootstrap", "proxy") if case.over_sockets else control_truth.JUDGED)
    problems += [f"{case.name}: {problem}" for problem in of_control]
    print(f"{line}; by {sources_of(report)}; {told} connections as NCCL tells of them; {control}")
    sent = sum(truth.Truth(doubles, is_local).sent.values())
    problems += [f"{case.name}: {problem}" for problem in transport_truth.problems_of(report, sent, case.over_sockets, case.source)]
    ways = transport_truth.problems_of_ways(report, case.over_sockets, int(case.environment.get("NCCL_IB_QPS_PER_CONNECTION", "1")), case.nics)
    problems += [f"{case.name}: {problem}" for problem in ways]
    # A socket that was opened and closed between two samples was never measured.
    if sources_of(report) - ({"derived"} if case.over_sockets else set()) != {case.source}:
        problems.append(f"{case.name}: bytes are known by {sources_of(report)}, not {case.source}")
    return report, problems + not_told


def ready_ns_of(case, out):
    """When its recorder was ready, by rank."""
    return [harness.load(out, f"node{node}", case.name, "result.json")["ready_ns"] for node in range(NODES) for _ in range(case.ranks_per_node)]


def check_late(case, out, report, doubles, is_local):
    ready_ns = ready_ns_of(case, out)
    paths = sorted(glob.glob(os.path.join(out, "node*", case.name, "job.*")))
    logs = {(os.path.relpath(path, out).split(os.sep)[0], truth.lines_of(path)[0]["pid"]): log for log, path in enumerate(paths)}
    compared, problems = late.compare(report, doubles, logs, ready_ns, is_local)
    sends, of_sends = late.compare_sends(report, doubles, ready_ns, is_local)
    problems += of_sends
    identity = report["identity"]
    under_way, not_exact = late.most_under_way(doubles, ready_ns, is_local), identity["inferred"] + identity["process"]
    if not_exact > under_way:
        problems.append(f"{not_exact} bytes are not exact, no more than {under_way} can have been under way when the recorders began: {identity}")
    if case.source not in sources_of(report):
        problems.append(f"bytes are known by {sources_of(report)}, not {case.source}")
    if any(finding["kind"] == "bytes_differ" for finding in report["findings"]):
        problems.append("bytes differ, though the double has what is reported")
    print(f"{case.name}: {compared} collectives of a rank and {sends} sends compared, {len(problems)} problems; recorders began over "
          f"{(max(ready_ns) - min(ready_ns)) / 1e9:.1f} s; {not_exact} bytes not exact, up to {under_way} were under way; identity {identity}")
    return problems + ([] if compared >= case.fewest_figures and sends else [f"no more than {compared} collectives and {sends} sends compared"])


def check(arguments, out):
    library = library_of(arguments.nccl)
    wanted = chosen(arguments)
    harness.run_job(out, arguments.kernel, NODES, "nccl.py", "--pcap", "--nics", str(max(case.nics for case in wanted)),
                    "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={DOUBLE}", *harness.missed_calls_options(arguments.kernel),
                    "--env", f"NCCL_CASES={','.join(case.name for case in wanted)}", limit_s=BOOT_S + CASE_S * len(wanted))
    judge(wanted, out, arguments.kernel)


def torn(out):
    """Runs of cases that jobs/nccl.py began again."""
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(out, "node0", "*.torn.*")))
    if names:
        print(f"run again, since rdma_rxe tore an entry: {names}")
    return names


def report_of_torn(name, out):
    captures = sorted(glob.glob(os.path.join(out, "node*", name, "capture")))
    return harness.report_of(captures, os.path.join(out, f"{name}.json"), quiet=True, expected=(0, harness.LOST))


def judge(wanted, out, kernel):
    reports, problems = [], []
    for case in wanted:
        report, of_case = check_case(case, out, kernel)
        reports.append((case, report))
        problems += of_case
    problems += packets.compare(out, reports, [report_of_torn(name, out) for name in torn(out)])
    assert not problems, "\n".join(problems[:40])


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--cases", default="few", metavar="CASE,...", help=f"{', '.join(cases.ALL)}; few, all")
    parser.add_argument("--judge", metavar="DIR", help="judge what is in DIR, and run nothing")
    arguments = parser.parse_args()
    if arguments.judge:
        judge(chosen(arguments), arguments.judge, arguments.kernel)
        return
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
