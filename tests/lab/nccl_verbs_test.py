#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL whose queue pairs come from libibverbs, from the start and attached in the middle: each case is judged like those of nccl_test.py.

nccl_verbs_test.py [--kernel SERIES] [--nccl VERSION] [--core own|refused]

own: on the kernel's own RDMA core, with a recorder that reads it beside the other one. The whole report is the same, field by field.
refused: on a core that is not the kernel's own and has no BTF, which the recorder refuses by itself. Nothing is lost but what this test names."""

import argparse
import json
import os

import altered_stack
import lab_harness as harness
import nccl_run
import nccl_test
import qp_sources_test as sources

import cases

JOBS = {"own": "everything-posted+verbs,late-posted+late-verbs", "refused": "everything-posted,late-posted"}
# Of an existing queue pair NCCL's memory has both GIDs, the LID and the MTU; these it does not have.
NOT_IN_MEMORY = {"service_level", "traffic_class", "flow_label"}
# The two recorders attach and end at different moments.
OF_TIME = {"posted_tx_payload_bytes", "tx_payload_bytes", "tx_wire_bytes", "rx_payload_bytes", "rx_wire_bytes", "tx_response_wire_bytes"}
# Sections that follow from the queue pairs and NCCL's records, of a job that both recorded as a whole.
SECTIONS = ("communicators", "collectives", "p2p", "unjoined", "matrix", "total", "tiers", "identity", "control", "findings", "node_pairs",
            "unmatched_posts", "nccl")
OF_TIMES = {"id", "created", "ended", "first_seen", "compared_calls", "last_calls", "late_calls"}


def comparable(value, hashes):
    """A report's value without what two recorders on one job cannot have alike: times, who came last by them, and the order by time. Communicators have
    their hash in place of their number."""
    if isinstance(value, dict):
        return {key: hashes.get(part, part) if key in ("comm", "parent") else comparable(part, hashes) for key, part in value.items()
                if not key.endswith("_ns") and key not in OF_TIMES}
    if isinstance(value, list):
        return sorted((comparable(part, hashes) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def by_hash(report):
    return {comm["id"]: comm["hash"] for comm in report["communicators"]}


def compare_queue_pairs(kernel, verbs, left_out, what):
    kernel_hashes, verbs_hashes = by_hash(kernel), by_hash(verbs)
    kernel, verbs = sources.by_number(kernel), sources.by_number(verbs)
    problems = [f"{what}: queue pairs in one report only: {sorted(kernel.keys() ^ verbs.keys())[:4]}"] if kernel.keys() != verbs.keys() else []
    n_existing = 0
    for key in kernel.keys() & verbs.keys():
        n_existing += verbs[key]["preexisting"]
        mine, its = (dict(of[key], comm=hashes.get(of[key].get("comm"))) for of, hashes in ((kernel, kernel_hashes), (verbs, verbs_hashes)))
        found = sources.differences(mine, its, left_out | (NOT_IN_MEMORY if its["preexisting"] else set()))
        if found:
            problems.append(f"{what}: queue pair {key}: {found}")
    print(f"{what}: {len(kernel)} queue pairs equal but for {sorted(left_out)}; {n_existing} of them existed before: {len(problems)} problems", flush=True)
    return problems, n_existing


def compare_sections(kernel, verbs):
    problems = []
    for name in SECTIONS:
        mine, its = (comparable(report[name], by_hash(report)) for report in (kernel, verbs))
        if mine != its:
            problems.append(f"section {name} differs: {first_difference(mine, its)}")
    print(f"from the start: sections {', '.join(SECTIONS)} compared, {len(problems)} differ", flush=True)
    return problems


def first_difference(one, other, path=""):
    if type(one) is not type(other):
        return f"{path}: {one!r:.200} and {other!r:.200}"
    if isinstance(one, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return first_difference(one.get(key), other.get(key), f"{path}.{key}")
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{path}: {len(one)} and {len(other)} entries"
        for i, (mine, its) in enumerate(zip(one, other)):
            if mine != its:
                return first_difference(mine, its, f"{path}[{i}]")
    return f"{path}: {one!r:.200} and {other!r:.200}"


def judge_own(reports):
    problems, _ = compare_queue_pairs(reports["everything-posted"], reports["verbs"], sources.TIMES | sources.NOT_SHOWN, "from the start")
    problems += compare_sections(reports["everything-posted"], reports["verbs"])
    of_late, n_existing = compare_queue_pairs(reports["late-posted"], reports["late-verbs"], sources.TIMES | sources.NOT_SHOWN | OF_TIME, "late")
    return problems + of_late + ([] if n_existing else ["late: no queue pair existed before"])


def judge_refused(reports):
    problems = []
    for name, report in reports.items():
        wanted = {"qp": "refused", "verbs": "on", "posts": "on", "nccl": "on"}
        for source in report["sources"]:
            if source["name"] in wanted and source["state"] != wanted[source["name"]]:
                problems.append(f"{name}: {source}")
    existing = [qp for qp in sources.by_number(reports["late-posted"]).values() if qp["preexisting"]]
    lacking = [qp for qp in existing if qp["pairing"] != "paired" or qp["tier"] in (None, "unknown") or qp["path_mtu_bytes"] is None]
    print(f"late: {len(existing)} queue pairs existed before, {len(lacking)} of them without their other end", flush=True)
    return problems + ([] if existing else ["late: no queue pair existed before"]) + [f"late: {qp}" for qp in lacking[:4]]


def judge(arguments, out):
    reports, problems = {}, []
    for case in (case for of_job in cases.jobs_of(JOBS[arguments.core]) for case in of_job):
        reports[case.name], of_case = nccl_test.check_case(case, out, arguments.kernel)
        problems += of_case
    problems += (judge_own if arguments.core == "own" else judge_refused)(reports)
    assert not problems, "\n".join(problems[:40])


def check(arguments, out):
    options = []
    if arguments.core == "refused":
        altered_stack.need_tools()
        directory = os.path.join(os.path.dirname(out), "stack")
        os.makedirs(directory, exist_ok=True)
        built = altered_stack.build(arguments.kernel, os.path.join(directory, "build"))
        options = ["--modules", altered_stack.undescribed(built, os.path.join(directory, "modules"))]
    nccl_run.run(out, arguments.kernel, nccl_run.library_of(arguments.nccl), cases.jobs_of(JOBS[arguments.core]), "--pcap", *options)
    judge(arguments, out)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--core", choices=JOBS, default="own")
    parser.add_argument("--judge", metavar="DIR", help="judge the results in DIR, and run nothing")
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments, arguments.judge)
        return
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
