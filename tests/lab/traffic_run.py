# SPDX-License-Identifier: Apache-2.0
"""A recorded run of the benchmark job, and what the benchmarks themselves and the links say of it."""

import collections
import os

import lab_harness as harness
import late_attach

NODES = 3
LEAVES = (0, 0, 1)  # of each node
MTU_BYTES = 1500
ETHERNET_BYTES = 14
REPORTS = {"wire": harness.REPORT, "posted": "posted.json", "from_first": late_attach.REPORT}


def reports_of(out, kernel, has_late):
    """{kind: report} by the kinds of truth/compare.py: of packets, of posts alone, and of late recorders. They are left in `out`."""
    wanted = {"wire": ("capture", REPORTS["wire"]), "posted": ("posted", REPORTS["posted"])}
    if has_late:
        wanted["from_first"] = (late_attach.CAPTURE, REPORTS["from_first"])
    return {kind: harness.collwire_report(out, capture=capture, name=name, expected=harness.report_statuses(kernel))
            for kind, (capture, name) in wanted.items()}


def missed_calls(report, kernel):
    """Where the kernel keeps a call from a probe, the capture says so and lacks what that call had to say: another run is compared."""
    return [entry for entry in report["loss"]["entries"] if kernel == harness.MISSES_CALLS and entry["class"] == "probe_missed"]


def run_benchmarks(out, kernel, loss_percent, then, more_options):
    """Boots the nodes and runs jobs/benchmarks.py under two recorders on each, and then the other jobs."""
    # The programs of source mlx5 load and attach without the hardware.
    options = ["--pcap", "--env", "RECORDED_JOB=benchmarks.py", "--env", "RECORDED_MODULES=mlx5_ib",
               "--env", "SECOND_CAPTURE=posted", "--env", "SECOND_OPTIONS=--no-wire --posts=on",
               "--env", f"IN_TURN={' '.join(['recorded.sh', *then])}", *more_options]
    options += harness.missed_calls_options(kernel)
    if loss_percent:
        # What cannot bear loss (UC, UD) is left out; the frames are dropped after the sender's packet capture.
        options += ["--env", "BENCHMARKS=rc"]
        for node in range(NODES):
            options += ["--fault", f"loss:{node}:{loss_percent}@T+0"]
    harness.run_job(out, kernel, NODES, "in_turn.sh", *options)


def roce_bytes(out, capture):
    """{(source, destination): bytes of RoCE} on one link, where nothing but whole frames of nodes is."""
    nodes = {harness.mac(node): node for node in range(NODES)}
    found = collections.Counter()
    for source, destination, _, length, frame in harness.frames(os.path.join(out, "fabric", f"{capture}.pcap")):
        assert source in nodes, f"{capture}: a frame from {source.hex(':')}, which is no node"
        assert length <= MTU_BYTES + ETHERNET_BYTES, f"{capture}: a frame of {length} B cannot be on a wire of MTU {MTU_BYTES}"
        if harness.is_roce(frame):
            found[(nodes[source], nodes[destination])] += length
    return found


def check_links(out):
    """The lab itself: a frame between the leaves is on both uplinks and on both nodes' links, every other one on no uplink. That each counter
    is what its capture holds, tools/lab checks in every run, and truth/compare.py does again."""
    on = {capture: roce_bytes(out, capture) for capture in ("tap0", "tap1", "tap2", "up0", "up1")}
    between_leaves = {pair for pair in on["tap0"] + on["tap1"] + on["tap2"] if LEAVES[pair[0]] != LEAVES[pair[1]]}
    assert {(0, 2), (2, 0)} <= between_leaves and on["tap0"][(0, 1)] > 0, on
    for uplink in ("up0", "up1"):
        assert set(on[uplink]) == between_leaves, f"{uplink} carried {set(on[uplink])}"
        for pair, carried in on[uplink].items():
            assert carried == on[f"tap{pair[0]}"][pair] == on[f"tap{pair[1]}"][pair], (uplink, pair, on)
    switches = [port["switch"] for port in harness.load(out, "topology.json")["ports"]]
    assert switches == [f"leaf{leaf}" for leaf in LEAVES], switches
    print(f"RoCE on the uplinks: {dict(on['up0'])}", flush=True)


def truth_for(said, qp, packets_counted):
    figures = {field: said[field] for field in ("tx_payload_bytes", "rx_payload_bytes") if field in said}
    if "answered_payload_bytes" in said:
        figures["tx_payload_bytes"] = said.get("tx_payload_bytes", 0) + (said["answered_payload_bytes"] if packets_counted else 0)
    if not packets_counted and qp["type"] == "UD":
        # A datagram's work request does not say, in a field that collwire reads, where it goes.
        figures["rx_payload_bytes"] = None
    return figures


def figures_of(qp, fields):
    return {field: qp[field] for field in fields}


def check_benchmarks(out, report, packets_counted):
    """Payload of each queue pair against what the program that used it says. packets_counted: packets and not only posts, so that the
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
