#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL that hangs on four nodes, over kernel RDMA and sockets, for a reason that is known: `collwire inspect` on each node and
`collwire diagnose` of all files name the rank and the kind. So does `collwire diagnose` of the captures, after all ranks were killed, or it says that captures
do not show it; without the culprit's capture it names no other rank.

inspect_test.py [--kernel SERIES] [--nccl VERSION] [--hangs HANG/PROTOCOL/ib|sockets,...|few|ib|all]"""

import argparse
import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "nccl"))

from hangs import CULPRIT, HANGS, RANKS, transfers_of  # noqa: E402

BOOT_S, HANG_S = 300, 120
# Of every run of the tests.
FEW = ("link-cut/Simple/ib", "dead/Simple/ib", "never-calls/Simple/ib")
ALL = tuple(f"{name}/{protocol}/{transport}" for transport in ("ib", "sockets") for protocol in ("Simple", "LL") for name in HANGS)


def diagnose(files):
    text = subprocess.run([harness.COLLWIRE, "diagnose", *files], capture_output=True, text=True, check=True).stdout
    print(text, flush=True)
    done = subprocess.run([harness.COLLWIRE, "diagnose", "--json", *files], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def expect_queue_pairs(processes):
    """The kernel tells of each queue pair that NCCL has for what is under way."""
    queue_pairs = [endpoint for process in processes if process for transfer in transfers_of(process) for endpoint in transfer["endpoints"]]
    assert queue_pairs and all(each["device"] == "rxe0" and each["port"] == 1 and each["state"] and each["remote_qpn"] for each in queue_pairs), queue_pairs


def judge_captures(out, name):
    captures = [os.path.join(out, f"node{node}", name.replace("/", "-"), "capture") for node in range(RANKS)]
    HANGS[name.split("/", maxsplit=1)[0]].judge_captures(diagnose(captures)["verdicts"])
    others = diagnose([capture for node, capture in enumerate(captures) if node != CULPRIT])["verdicts"]
    assert {verdict["rank"] for verdict in others} <= {None, CULPRIT}, others


def judge(out, name):
    paths = [os.path.join(out, f"node{node}", name.replace("/", "-"), "inspect.json") for node in range(RANKS)]
    processes = [harness.load(path)["processes"][0] if os.path.exists(path) else None for path in paths]
    diagnosis = diagnose([path for path in paths if os.path.exists(path)]) if any(processes) else None
    try:
        HANGS[name.split("/")[0]].judge(processes, diagnosis)
        if name.endswith("/ib") and not name.startswith("dead"):
            expect_queue_pairs(processes)
        judge_captures(out, name)
    except AssertionError as problem:
        print(f"{name}: NOT named: {problem}", flush=True)
        return False
    print(f"{name}: named", flush=True)
    return True


def check(arguments, out):
    # Over sockets they also run on one machine.
    over_rdma = tuple(name for name in ALL if name.endswith("/ib"))
    names = {"few": FEW, "ib": over_rdma, "all": ALL}.get(arguments.hangs) or tuple(arguments.hangs.split(","))
    library = nccl_run.library_of(arguments.nccl)
    harness.run_job(out, arguments.kernel, RANKS, "hanging.py", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                    "--env", f"HANGS={','.join(names)}", limit_s=BOOT_S + HANG_S * len(names))
    named = [judge(out, name) for name in names]
    print(f"{sum(named)} of {len(named)} named")
    assert all(named)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--hangs", default="few", metavar="HANG/PROTOCOL/TRANSPORT,...", help=f"of {', '.join(ALL)}; few, ib, all")
    arguments = parser.parse_args()
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
