#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the lab does to the fabric is in the captures and in the report. A port that goes down and up: its carrier edges and port errors,
when they happened and where. An uplink that is cut, and frames lost, where no host can see it: the effects alone, and named so.

fabric_faults_test.py [--kernel SERIES]"""

import datetime

import lab_harness as harness

# A busy node may take several seconds to end its loss, and an effect this near to a flap would be put down to it.
CUT, LOSS, FLAP = "silent:leaf0-spine0@T+35+4", "loss:2:20@T+49+3", "port:0@T+75+3"
TRAFFIC_S = 83
# A node's clock is set from the host's; its counters are read once a second.
CLOCK_S, SAMPLE_S = 1.0, 1.5
TIMEOUT_S = 1.1
EARLY_S, LATE_S = SAMPLE_S + CLOCK_S, TIMEOUT_S + SAMPLE_S + CLOCK_S
# There rdma_rxe ends a queue pair when the carrier goes off: its work requests are flushed.
ENDED_BY_A_FLAP = ("6.12", "newest")
EDGES = {"carrier_down", "carrier_up", "port_err", "port_active", "port_state", "port_errors"}


def fault_times(out):
    """{fault: (begin, end, over)} in seconds since the epoch. A node that is busy takes a while to do what it is told: a fault begins
    at its begin or later, and is over at last."""
    times = {}
    for record in harness.load(out, "fabric", "faults.json"):
        times.setdefault(record["fault"], {})[record["event"]] = (record["unix_ns"] / 1e9, record["done_s"] - record["at_s"])
    return {fault: (both["start"][0], both["end"][0], sum(both["end"])) for fault, both in times.items()}


def begins_s(event):
    return event["realtime_ns"] / 1e9


def ends_s(event):
    length_ns = 0 if event["end_ns"] is None else event["end_ns"] - event["time_ns"]
    return begins_s(event) + length_ns / 1e9


def check_traffic(out, report, kernel, cut, flap):
    """The transfers were on their way before the cut and went on after it; on most kernels after the flap too. Returns whether a
    transfer outlived the flap."""
    transfers = harness.load(out, "node0", "result.json")
    pairs = {qp["qpn"]: qp for qp in report["qps"] if qp["host"] == "node0"}
    far, near = (pairs[transfers[name]["qpns"][0]] for name in ("far", "near"))
    begin = next(host for host in report["hosts"] if host["name"] == "node0")["recordings"][0]

    def since_epoch_s(time_ns):
        return datetime.datetime.fromisoformat(begin["begin"]).timestamp() + (time_ns - begin["begin_ns"]) / 1e9

    for name, qp in (("far", far), ("near", near)):
        first_s, destroyed_s = since_epoch_s(qp["wire"]["tx"]["first"]["time_ns"]), since_epoch_s(qp["destroyed_ns"])
        assert first_s < cut[0] - CLOCK_S, "the transfers began after the cut: this machine was too slow"
        assert qp["state"] == "RTS", qp
        print(f"{name}: exit status {transfers[name]['status']}, the queue pair went {destroyed_s - flap[1]:+.1f} s from the end of the flap")
        if transfers[name]["status"] == 0:
            assert destroyed_s > flap[1], "the transfer ended before the flap: TRAFFIC_S is too short"
        else:
            assert kernel in ENDED_BY_A_FLAP, (kernel, transfers)
            assert destroyed_s > flap[0] - CLOCK_S, "the transfer did not outlive the cut"
    assert far["tier"] == "spine" and near["tier"] == "leaf", (far, near)
    assert far["retransmitted_wire_bytes"] > 0, far
    return any(transfer["status"] == 0 for transfer in transfers.values())


def check_flap(report, flap, outlived):
    """Every edge once, on the port that was hit and nowhere else, when it happened."""
    edges = [event for event in report["events"] if event["kind"] in EDGES]
    assert {(event["host"], event["device"], event["port"]) for event in edges} == {("node0", "rxe0", 1)}, edges
    for kind, at_s in (("carrier_down", flap[0]), ("port_err", flap[0]), ("carrier_up", flap[1]), ("port_active", flap[1])):
        found = [event for event in edges if event["kind"] == kind]
        assert len(found) == 1, f"{len(found)} events {kind}: {found}"
        assert not found[0]["derived"], found
        assert abs(begins_s(found[0]) - at_s) < CLOCK_S, f"{kind} at {begins_s(found[0]):.3f}, the fault at {at_s:.3f}"
        assert not kind.startswith("carrier") or found[0]["netdev"] == "eth0", found
        print(f"{kind}: {(begins_s(found[0]) - at_s) * 1e3:+.0f} ms from the fault")
    assert min(begins_s(event) for event in edges) > flap[0] - SAMPLE_S - CLOCK_S, edges
    # What went over that port was sent again, and the port's own link is named as the cause.
    after = [event for event in report["events"] if event["kind"] in ("retransmissions", "suspected_path_loss")
             and ends_s(event) > flap[0] - CLOCK_S and begins_s(event) < flap[1] + CLOCK_S]
    assert {event["kind"] for event in after} <= {"retransmissions"}, after
    assert after or not outlived, "nothing was sent again"


def check_unseen(report, name, cut, begun_s):
    """No host can see it: one derived event of the connection that it hits and of no other. The other end may tell of gaps in what it got."""
    found = [event for event in report["events"]
             if event["kind"] in ("retransmissions", "suspected_path_loss") and ends_s(event) > cut[0] and begins_s(event) < cut[2] + LATE_S]
    print(f"{name}: {cut[1] - cut[0]:.1f} s, over {cut[2] - cut[1]:.1f} s later")
    assert {event["kind"] for event in found} == {"suspected_path_loss"} and all(event["derived"] for event in found), found
    event, = (event for event in found if event["host"] == "node0")
    for other in found:
        assert other is event or (other["host"] == "node2" and "out_of_seq_request" in other["evidence"]), found
    assert (event["host"], event["device"], event["port"], event["peers"]) == ("node0", "rxe0", 1, ["node2"]), event
    assert event["evidence"]["retransmitted_frames"] > 0 and event["evidence"]["qps_retransmitting"] == 1, event
    assert cut[0] - EARLY_S < begins_s(event) < begun_s + LATE_S, f"{name}: begins {begins_s(event) - cut[0]:+.1f} s from it"
    assert ends_s(event) < cut[2] + 2 * LATE_S, f"{name}: ends {ends_s(event) - cut[1]:+.1f} s from its end"
    assert "carrier did not change" in event["what"] and "beyond this port" in event["what"], event
    print(f"{name}: {event['what']}; begins {begins_s(event) - cut[0]:+.1f} s, ends {ends_s(event) - cut[1]:+.1f} s from it")


def check_run(arguments, out):
    harness.run_job(out, arguments.kernel, 3, "recorded.sh", "--env", "RECORDED_JOB=fabric_faults.py",
                    "--env", f"TRAFFIC_S={TRAFFIC_S}", "--fault", CUT, "--fault", LOSS, "--fault", FLAP)
    report = harness.collwire_report(out)
    times = fault_times(out)
    outlived = check_traffic(out, report, arguments.kernel, times[CUT], times[FLAP])
    check_flap(report, times[FLAP], outlived)
    check_unseen(report, "cut", times[CUT], times[CUT][0])
    # The frames that are lost are one in five; which is the first to be missed is chance.
    check_unseen(report, "loss", times[LOSS], times[LOSS][2])


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
