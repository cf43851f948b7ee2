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


def compare(out, reports, others=()):
    """`reports`: (case of tests/nccl/cases.py, its report). Every queue pair's bytes, and those of each operation where operations are
    apart. `others`: reports whose queue pairs were there, too, and are not judged. Returns what is different."""
    fabric = Fabric(out, PATH_MTU_BYTES, RESTART_S)
    flows, problems, compared = fabric.flows, [], 0
    known = {key for report in others for key in Comparison(fabric, report).grouped()}
    for case, report in reports:
        comparison = Comparison(fabric, report)
        keys = set(comparison.grouped())
        known |= keys
        fabric.flows = {key: flow for key, flow in flows.items() if key in keys}
        # What was posted before the recorder came is on the wire behind its begin, too.
        if case.source == "derived" or (case.late_s and case.source == "posted"):
            continue
        if case.late_s:
            comparison.from_first(answers_too=False)
        else:
            (comparison.wire if case.source == "wire" else comparison.posted)()
        if "--gap-ms" in case.job_options:
            comparison.failures += operations_apart(comparison)
        compared += comparison.compared
        problems += [f"{case.name}: {failure}" for failure in comparison.failures]
    fabric.flows = flows
    problems += [f"{key}: {flow.wire_bytes} bytes on the wire, no queue pair in any report" for key, flow in flows.items() if key not in known]
    print(f"{compared} figures of queue pairs compared with tshark's, {len(problems)} different")
    if not compared and flows:
        problems.append("nothing was compared with tshark")
    return problems


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
