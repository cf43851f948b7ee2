# SPDX-License-Identifier: Apache-2.0
"""A recorded run of the benchmark job, and what the benchmarks themselves say of it."""

import collections
import shutil

import lab_harness as harness

NODES = 3
POSTED_REPORT = "posted.json"
# Where the kernel keeps a call from a probe, the capture says so and lacks what that call told: another run is compared.
RUNS = 3


def recorded_benchmarks(out, kernel, loss_percent):
    """The reports over a run from which the kernel kept no call: of packets, and of posts alone. They are left in
    out/report.json and out/posted.json."""
    for _ in range(RUNS):
        run_benchmarks(out, kernel, loss_percent)
        statuses = harness.report_statuses(kernel)
        reports = [harness.collwire_report(out, capture=capture, name=name, expected=statuses)
                   for capture, name in (("capture", harness.REPORT), ("posted", POSTED_REPORT))]
        missed = [entry for report in reports for entry in report["loss"]["entries"] if entry["class"] == "probe_missed"]
        if kernel != harness.MISSES_CALLS or not missed:
            return reports
        print(f"run again, since this kernel kept calls from probes: {missed}", flush=True)
        shutil.rmtree(out)
    raise AssertionError(f"calls were kept from probes in each of {RUNS} runs")


def run_benchmarks(out, kernel, loss_percent):
    """Boots the nodes and runs jobs/benchmarks.py under two recorders on each."""
    # The programs of source mlx5 load and attach without the hardware.
    options = ["--pcap", "--env", "RECORDED_JOB=benchmarks.py", "--env", "RECORDED_MODULES=mlx5_ib",
               "--env", "SECOND_CAPTURE=posted", "--env", "SECOND_OPTIONS=--no-wire --posts=on"]
    options += harness.missed_calls_options(kernel)
    if loss_percent:
        # What cannot bear loss (UC, UD) is left out; the frames are dropped behind the sender's packet capture.
        options += ["--env", "BENCHMARKS=rc"]
        for node in range(NODES):
            options += ["--fault", f"loss:{node}:{loss_percent}@T+0"]
    harness.run_job(out, kernel, NODES, "recorded.sh", *options)


def truth_for(said, qp, packets_counted):
    figures = {field: said[field] for field in ("tx_payload_bytes", "rx_payload_bytes") if field in said}
    if "answered_payload_bytes" in said:
        figures["tx_payload_bytes"] = said.get("tx_payload_bytes", 0) + (said["answered_payload_bytes"] if packets_counted else 0)
    if not packets_counted and qp["type"] == "UD":
        # A datagram's work requests do not say in a way that is looked at where it goes.
        figures["rx_payload_bytes"] = None
    return figures


def figures_of(qp, fields):
    return {field: qp[field] for field in fields}


def check_benchmarks(out, report, packets_counted):
    """Payload of each queue pair against what the program that used it says. packets_counted: not only posts, so that the
    answers to READ and ATOMIC are payload that was sent."""
    pairs = collections.defaultdict(list)  # Linux 5.10 gives a number that is free to the next queue pair
    for qp in report["qps"]:
        pairs[(qp["host"], qp["qpn"])].append(qp)
    by_process = collections.defaultdict(list)
    comms = {(process["host"], process["pid"]): process["comm"] for process in report["processes"]}
    for qp in report["qps"]:
        by_process[(qp["host"], comms.get((qp["host"], qp["pid"])))].append(qp)
    checked = 0
    for node in range(NODES):
        for said in harness.load(out, f"node{node}", "expected.json"):
            candidates = pairs[(said["host"], said["qpn"])] if "qpn" in said else by_process[(said["host"], said["comm"])]
            equal = [qp for qp in candidates if figures_of(qp, truth_for(said, qp, packets_counted)) == truth_for(said, qp, packets_counted)]
            assert equal, f"{said}: collwire has {[figures_of(qp, truth_for(said, qp, packets_counted)) for qp in candidates]}"
            candidates.remove(equal[0])
            checked += len(truth_for(said, equal[0], packets_counted))
    print(f"{checked} payload figures equal the programs'", flush=True)
    assert checked >= 20, checked


def check_tiers(report):
    tiers = report["tiers"]
    for tier in ("leaf", "spine"):
        assert tiers[tier]["tx_wire_bytes"] > 0, tiers
    assert not report["loss"]["entries"], report["loss"]


def check_mlx5(report):
    """Its programs are in the kernel's own modules, which are loaded though no device is there."""
    states = [source["state"] for source in report["sources"] if source["name"] == "mlx5"]
    assert states == ["on"] * NODES, [source for source in report["sources"] if source["name"] == "mlx5"]
    print(f"mlx5: on, on {NODES} nodes")
