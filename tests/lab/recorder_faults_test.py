#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A recorder that is killed, or has no disk space, a NIC that is removed, a user without privileges: the capture reads to its last good block,
what was lost is counted, the traced programs verify their data, and no BPF object stays.

recorder_faults_test.py [--kernel SERIES]"""

import os
import re

import lab_harness as harness
from recorder_loss import lost
from recorder_reports import add_report, report


# The recorder's words for a class of loss, on standard error.
SAID = {"record_write": r"(\d+) records that could not be written", "qp_event": r"(\d+) queue pair events \(ring buffer full\)"}


def said_lost(case, name):
    return int(re.search(SAID[name], case["said"]).group(1))


def add_reports(directory, results):
    """What the captures have."""
    for name, case in results.items():
        if name.startswith("killed-"):
            _, data = report(directory, name)
            case.update(ends=[capture["end"] for capture in data["captures"]],
                        tx_wire_bytes=[qp["tx_wire_bytes"] for qp in data["qps"] if qp["qpn"] in case["qpns"]])
    add_report(directory, results, "full-disk")
    freed = add_report(directory, results, "freed-disk")
    pid = results["freed-disk"]["outcome"]["after"]["pid"]
    results["freed-disk"]["qps_after"] = sum(qp["pid"] == pid for qp in freed["qps"])

    status, data = report(directory, "nic-removed")
    results["nic-removed"].update(
        report_status=status, loss=data["loss"], gone=[event["device"] for event in data["events"] if event["kind"] == "device_gone"],
        qps={device: sum(qp["device"] == device and qp["type"] == "RC" for qp in data["qps"]) for device in ("rxe0", "rxe1")},
        tx_payload_bytes=sum(qp["tx_payload_bytes"] for qp in data["qps"] if qp["device"] == "rxe0"))

    status, data = report(directory, "unprivileged")
    results["unprivileged"].update(report_status=status, port=next(port for port in data["ports"] if port["device"] == "rxe0"), qps=len(data["qps"]))

    status, data = report(directory, "pid")
    results["pid"].update(report_status=status, pids=[qp["pid"] for qp in data["qps"] if qp["type"] == "RC"], sent=data["total"]["tx_wire_bytes"])


def check(results, kernel):
    killed = [case for name, case in results.items() if name.startswith("killed-")]
    assert killed
    for case in killed:
        assert case["recorder"] == -9, case
        # The file stops where the recorder did; what it has of the transfer is there.
        assert case["ends"] in (["open"], ["damaged"]) and len(case["tx_wire_bytes"]) == 1, case
        assert case["verified"] and case["rounds"] > 1, case
    assert results["killed-0"]["tx_wire_bytes"][0], killed
    print("killed:", [(case["ends"], case["rounds"], case["tx_wire_bytes"]) for case in killed])
    early = results["early"]
    assert early["verified"] and early["rounds"] > 1 and early["recorder"] == -9, early
    assert "recording\n" not in early["said"] and sum(early["placed"]) > 0, f"it was not killed while it started: {early}"

    full = results["full-disk"]
    assert full["status"] == 5 and full["outcome"]["verified"], full
    assert "No space left" in full["said"], full
    assert 0 < full["qps"] < full["outcome"]["qps"], full
    said = {name: said_lost(full, name) for name in SAID}
    missing = 5 * full["outcome"]["qps"] - (full["qp_records"] - full["existing_records"])
    assert sum(said.values()) >= missing > said["qp_event"], (full, missing)
    # The disk stays full: the capture has what was counted when the last block was written.
    in_capture = {entry["class"]: entry["records"] for entry in full["loss"]["entries"]}
    assert in_capture and all(in_capture.get(name, 0) <= said[name] for name in SAID), full

    freed = results["freed-disk"]
    of_class = lost(freed, kernel)
    assert list(of_class) == ["record_write"] and "No space left" in freed["said"], freed
    made = 2 * (freed["outcome"]["during"]["qps"] + freed["outcome"]["after"]["qps"])
    assert freed["qp_records"] - freed["existing_records"] + of_class["record_write"] == made, (freed, made)
    assert freed["qps_after"] == freed["outcome"]["after"]["qps"], freed

    manners = results["manners"]
    assert manners["dry_run"]["status"] == 0 and "ib_core" in manners["dry_run"]["said"], manners
    # Two of its lines: a kernel function, and an instruction of a library, with what each costs.
    assert re.search(r"^  f?k?(entry|probe) +ib_\S+ +\d+ ns/hit", manners["dry_run"]["said"], re.MULTILINE), manners["dry_run"]["said"]
    assert re.search(r"^  uprobe +/\S+rxe\S+\+0x[0-9a-f]+ \(.+\) +\d+ ns/hit  `.+`, emulated$", manners["dry_run"]["said"],
                     re.MULTILINE), manners["dry_run"]["said"]
    assert manners["lossy"]["status"] == 5 and "lost: " in manners["lossy"]["said"], manners["lossy"]
    one = results["pid"]
    assert one["status"] == one["report_status"] == 0 and one["programs"] == [0, 0], one
    assert one["pids"] == [one["wanted"]] * 5 and one["sent"] > 0, one
    if "no-device" in results:
        assert results["no-device"]["status"] == 4 and "Fix: " in results["no-device"]["said"], results["no-device"]
        assert results["sockets-only"]["status"] == 0 and "no RDMA device" in results["sockets-only"]["said"], results["sockets-only"]

    nobody = results["unprivileged"]
    assert nobody["status"] == 0 and nobody["report_status"] == 0 and nobody["modes"] == [0o600], nobody
    assert nobody["qps"] == 0 and nobody["port"]["tx_wire_bytes"] > nobody["posted_bytes"] > 0, nobody
    assert nobody["port"]["unexplained_tx_bytes"] is None or nobody["port"]["explained_tx_bytes"] == 0, nobody
    print(nobody["said"])

    nic = results["nic-removed"]
    assert nic["status"] == 0 and nic["gone"] == ["rxe1"], nic
    assert nic["qps"]["rxe1"] == nic["outcome"]["qps"] and nic["tx_payload_bytes"] > 0, nic
    assert results["left"] == [0, 0, []], f"programs, links, pins of BPF left: {results['left']}"


def check_run(arguments, out):
    harness.run_job(out, arguments.kernel, 2, "recorder_faults.py", "--nics", "2",
                    "--env", f"COLLWIRE_FULL={os.environ.get('COLLWIRE_FULL', '0')}")
    directory = os.path.join(out, "node0")
    results = harness.load(directory, "results.json")
    add_reports(directory, results)
    check(results, arguments.kernel)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
