# SPDX-License-Identifier: Apache-2.0
"""Reports of several cases that ran one after the other in one lab, against its packet captures."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from compare import Comparison, Fabric

PATH_MTU_BYTES = 1024
# NCCL's queue pairs all begin with PSN 0. What is sent again is sent after 1.1 s (NCCL_IB_TIMEOUT 18).
RESTART_S = 2.0
# Between two operations nothing is sent for so long.
SILENCE_S = 1.0
# The clocks of nodes and host may be this far apart; NCCL takes longer until it sends.
CLOCK_TOLERANCE_S = 1.0


def compare(out, reports, others=()):
    """`reports`: (case of tests/nccl/cases.py, its report). Compares every queue pair's bytes, and those of each operation where operations are
    apart. `others`: reports of queue pairs that were there, too, and are not judged. Returns the differences. A frame is of the first
    job that was not over: a device reuses numbers, so that two jobs can have queue pairs of one number between the same nodes."""
    fabric = Fabric(out, PATH_MTU_BYTES, RESTART_S)
    jobs = {} # name -> (case, comparison) of each of its recordings
    for case, report in reports:
        jobs.setdefault(case.job_name, []).append((case, Comparison(fabric, report)))
    jobs.update({number: [(None, Comparison(fabric, report))] for number, report in enumerate(others)})
    problems, compared, frames, begin_s = [], 0, 0, 0.0
    for end_s, recordings in sorted(((last_end_s(recordings), recordings) for recordings in jobs.values()), key=lambda job: job[0]):
        of_job = fabric.between(begin_s, end_s + CLOCK_TOLERANCE_S)
        begin_s = end_s + CLOCK_TOLERANCE_S
        frames += sum(len(flow.frames) for flow in of_job.flows.values())
        for case, comparison in recordings:
            comparison.fabric = of_job
            if case is not None:
                judge(case, comparison)
                compared += comparison.compared
                problems += [f"{case.name}: {failure}" for failure in comparison.failures]
    if (of_all := sum(len(flow.frames) for flow in fabric.flows.values())) != frames:
        problems.append(f"{of_all - frames} of {of_all} frames are of no case")
    print(f"{compared} figures of queue pairs compared with tshark's, {len(problems)} different")
    if not compared and frames:
        problems.append("nothing was compared with tshark")
    return problems


def last_end_s(recordings):
    """Of the recorders of a job."""
    return max(comparison.clocks.end_s(host["name"]) for _, comparison in recordings for host in comparison.report["hosts"])


def judge(case, comparison):
    if case.source == "derived" or (case.late_s and case.source == "posted"):
        # What was posted before the recorder came is on the wire behind its begin, too.
        comparison.none_unknown()
    elif case.late_s:
        comparison.from_first(answers_too=False)
    else:
        (comparison.wire if case.source == "wire" else comparison.posted)()
    if case.is_apart:
        comparison.failures += operations_apart(comparison)


def operations_apart(comparison):
    """What was on the wire between two silences, acknowledgements left out, is one operation's."""
    sent = sorted(((frame.time_s, frame.wire_bytes, frame.payload_bytes) for key, qps in comparison.grouped().items()
                   if any(qp["role"] == "data" for qp in qps) and key in comparison.fabric.flows
                   for frame in comparison.fabric.flows[key].frames if frame.opcode & 0x1F != 17))
    bursts, last_s = [], -SILENCE_S
    for time_s, wire_bytes, payload_bytes in sent:
        if time_s - last_s >= SILENCE_S:
            bursts.append([0, 0])
        last_s = time_s
        bursts[-1][0] += wire_bytes
        bursts[-1][1] += payload_bytes
    operations = sorted((operation for operation in comparison.report["collectives"] if operation["tx_payload_bytes"]),
                        key=lambda operation: operation["launched_realtime_ns"])
    found = [[operation["tx_wire_bytes"], operation["tx_payload_bytes"]] for operation in operations]
    print(f"{len(bursts)} operations apart: {bursts}")
    return [] if found == bursts and bursts else [f"operations by their bytes {found}, on the wire {bursts}"]
