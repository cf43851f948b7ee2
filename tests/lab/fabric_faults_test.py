#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault in one run of three nodes: what it does to the frames on each link, what the node that it hits can see of it, and what the
report says. A port that goes down and up is reported with its edges and port errors; an uplink that is cut, and frames that are lost, by their
effects alone, and named so.

fabric_faults_test.py [--kernel SERIES]"""

import datetime
import os
import typing

import lab_harness as harness

NODES = 3
# These hit the RDMA transfers; the job announces when.
CUT, LOSS, FLAP = "silent:leaf0-spine0@cut..mend", "loss:2:20@loss..loss-over", "port:0@flap..flap-over"
# These hit the datagrams of the second NICs alone.
NODE_CUT, STANDING_LOSS, TIMED = "silent:tap2_1@node-cut..node-mend", "loss:1.1:30@T+0", "silent:tap1_1@T+2+1"
STANDING_LOSS_SHARE = 0.3
DATAGRAMS_PER_S = 25
# From when a fault is due until the host starts it.
PROMPT_S = 10
# A node's clock is set from the host's; its counters are sampled once a second.
CLOCK_S, SAMPLE_S = 1.0, 1.5
TIMEOUT_S = 1.1
# The report joins effects up to 2.5 s apart into one event; a retransmission follows the one before after 1.1 s.
APART_S = 1.0
EARLY_S, LATE_S = SAMPLE_S + CLOCK_S, TIMEOUT_S + SAMPLE_S + CLOCK_S
# There rdma_rxe ends a queue pair when the carrier goes off: its work requests are flushed.
ENDED_BY_A_FLAP = ("6.12", "newest")
EDGES = {"carrier_down", "carrier_up", "port_err", "port_active", "port_state", "port_errors"}


class Times(typing.NamedTuple):
    """Of a fault, in seconds since the epoch. A busy machine takes a while to obey: it starts between `start` and `started`, and ends between `end` and
    `over`."""
    start: float
    started: float
    end: float
    over: float


def fault_times(out):
    """{fault: Times}"""
    times = {}
    for record in harness.load(out, "fabric", "faults.json"):
        assert 0 <= record["at_s"] - record["asked_s"] < PROMPT_S, record
        assert "done_s" in record, record
        times.setdefault(record["fault"], {})[record["event"]] = (record["unix_ns"] / 1e9, record["done_s"] - record["at_s"])
    assert "end" not in times.pop(STANDING_LOSS), "a fault without an end ended"
    assert set(times) == {CUT, LOSS, FLAP, NODE_CUT, TIMED}, times
    return {fault: Times(both["start"][0], sum(both["start"]), both["end"][0], sum(both["end"])) for fault, both in times.items()}


# The frames

class Frames:
    """Times of the IPv4 frames on the links, in seconds since the epoch."""

    def __init__(self, out):
        self._out, self._links = out, {}

    def __call__(self, link, source, destination, nic=0):
        """Those from one node to another on this link."""
        if link not in self._links:
            stamps = {}
            for sender, receiver, time_s, frame in harness.stamped_frames(os.path.join(self._out, "fabric", f"{link}.pcap")):
                if frame[12:14] == b"\x08\x00":
                    stamps.setdefault((sender, receiver), []).append(time_s)
            self._links[link] = stamps
        return self._links[link].get((harness.mac(source, nic), harness.mac(destination, nic)), [])


def between(found, start, end):
    return sum(start <= stamp < end for stamp in found)


def standstill_s(frames, start, end):
    """How much longer than its datagrams are apart node 0 sent none on its second NIC, which no fault hits at its end: it had no CPU."""
    times = [start, *(stamp for stamp in frames("tap0_1", 0, 1, 1) if start <= stamp < end), end]
    return max(after - before for before, after in zip(times, times[1:])) - 1 / DATAGRAMS_PER_S


def check_cut_frames(frames, cut, next_fault):
    """The sender's frames go on into the fabric and come out nowhere."""
    _, started, end, over = cut
    sent, arrived = frames("tap0", 0, 2), frames("tap2", 0, 2)
    least = (end - started - 0.4) * DATAGRAMS_PER_S / 2
    assert least > 3, f"the cut was too short to be judged: {end - started:.1f} s"
    assert between(sent, started + 0.2, end - 0.2) > least, between(sent, started, end)
    assert between(arrived, started + 0.2, end - 0.2) == 0, between(arrived, started, end)
    # The job waits for traffic of two seconds before it announces the next one.
    assert between(arrived, over, next_fault.start) > 10, "the uplink did not come back"
    print(f"cut: {between(sent, started, end)} frames sent within {end - started:.1f} s, {between(arrived, started + 0.2, end - 0.2)} arrived")


def check_node_cut_frames(frames, cut):
    """The same at a node's own link."""
    _, started, end, over = cut
    sent, arrived = frames("tap0_1", 0, 2, 1), frames("tap2_1", 0, 2, 1)
    assert between(sent, started + 0.1, end - 0.1) > 5, between(sent, started, end)
    assert between(arrived, started + 0.1, end - 0.1) == 0 and arrived[0] < started and arrived[-1] > over, "node 2 was not cut off"


def check_flap_frames(frames, flap, fault_before, results):
    """The node sends nothing while its port is down. One edge down and one up, on the node that is hit and on no other."""
    down, is_down, up, _ = flap
    sent = frames("tap0", 0, 1)
    assert between(sent, is_down + 0.2, up) == 0, "node 0 sent while its port was down"
    assert between(sent, fault_before.over, down) > 10 and sent[-1] > up, "node 0 was not heard before or after the flap"
    for node, edges in enumerate((2, 0, 0)):
        nic = results[node]
        assert nic["after"]["carrier_changes"] - nic["before"]["carrier_changes"] == edges, (node, nic)
        assert nic["after"]["link_downed"] - nic["before"]["link_downed"] == edges // 2, (node, nic)
        assert nic["after"]["carrier"] == 1, (node, nic)


def check_standing_loss_frames(frames, results):
    """The loss is after the receiver's tap: the link carried the datagrams and the node did not get all of them."""
    asked, answered = frames("tap1_1", 0, 1, 1), frames("tap1_1", 1, 0, 1)
    print(f"datagrams sent and returned: {results[0]['datagrams']}; second link of node 1: {len(asked)} in, {len(answered)} out")
    expected = (1 - STANDING_LOSS_SHARE) * len(asked)
    assert len(asked) > 10 * DATAGRAMS_PER_S and 0.8 * expected < len(answered) < 1.2 * expected, (len(asked), len(answered), expected)


# The report

def starts_s(event):
    return event["realtime_ns"] / 1e9


def ends_s(event):
    length_ns = 0 if event["end_ns"] is None else event["end_ns"] - event["time_ns"]
    return starts_s(event) + length_ns / 1e9


def check_traffic(report, result, kernel, flap):
    """The transfers were on their way before the cut and went on after it; on most kernels after the flap, too. Returns whether a
    transfer outlived the flap."""
    transfers = result["transfers"]
    pairs = {qp["qpn"]: qp for qp in report["qps"] if qp["host"] == "node0"}
    far, near = (pairs[transfers[name]["qpns"][0]] for name in ("far", "near"))
    begin = next(host for host in report["hosts"] if host["name"] == "node0")["recordings"][0]

    def since_epoch_s(time_ns):
        return datetime.datetime.fromisoformat(begin["begin"]).timestamp() + (time_ns - begin["begin_ns"]) / 1e9

    for name, qp in (("far", far), ("near", near)):
        first_s, destroyed_s = since_epoch_s(qp["wire"]["tx"]["first"]["time_ns"]), since_epoch_s(qp["destroyed_ns"])
        assert first_s < result["announced"]["cut"], f"{name}: its traffic began after the cut"
        assert qp["state"] == "RTS", qp
        print(f"{name}: {'alive' if transfers[name]['alive'] else 'ended'}, the queue pair went {destroyed_s - flap.end:+.1f} s from the end of the flap")
        if transfers[name]["alive"]:
            assert destroyed_s > flap.end, "the transfer ended before the flap"
        else:
            assert kernel in ENDED_BY_A_FLAP, (kernel, transfers)
            assert destroyed_s > flap.start - CLOCK_S, "the transfer did not outlive the cut"
    assert far["tier"] == "spine" and near["tier"] == "leaf", (far, near)
    assert far["retransmitted_wire_bytes"] > 0, far
    return any(transfer["alive"] for transfer in transfers.values())


def check_flap(report, flap, seen, outlived):
    """Every edge once, on the port that was hit and nowhere else, when it happened: a second later at most, or as much later as node 0 itself saw it."""
    edges = [event for event in report["events"] if event["kind"] in EDGES]
    assert {(event["host"], event["device"], event["port"]) for event in edges} == {("node0", "rxe0", 1)}, edges
    off, on = (flap.start, seen["carrier off"]), (flap.end, seen["active"])
    for kind, (at_s, seen_s) in (("carrier_down", off), ("port_err", off), ("carrier_up", on), ("port_active", on)):
        found = [event for event in edges if event["kind"] == kind]
        assert len(found) == 1, f"{len(found)} events {kind}: {found}"
        assert not found[0]["derived"], found
        assert at_s - CLOCK_S < starts_s(found[0]) < max(at_s, seen_s) + CLOCK_S, \
            f"{kind} at {starts_s(found[0]):.3f}, the fault at {at_s:.3f}, seen at {seen_s:.3f}"
        assert not kind.startswith("carrier") or found[0]["netdev"] == "eth0", found
        print(f"{kind}: {(starts_s(found[0]) - at_s) * 1e3:+.0f} ms from the fault")
    assert min(starts_s(event) for event in edges) > flap.start - SAMPLE_S - CLOCK_S, edges
    # What went over that port was retransmitted, and the port's own link is named as the cause.
    after = [event for event in report["events"] if event["kind"] in ("retransmissions", "suspected_path_loss")
             and ends_s(event) > flap.start - CLOCK_S and starts_s(event) < flap.end + CLOCK_S]
    for event in after:
        # The other end's port is up all the time: gaps in what it got are frames lost beyond it.
        is_far_gap = event["kind"] == "suspected_path_loss" and event["host"] != "node0" and set(event["evidence"]) == {"out_of_seq_request"}
        assert event["kind"] == "retransmissions" or is_far_gap, after
    assert after or not outlived, "nothing was retransmitted"


def check_incident(report, result):
    """The flap with its processes: those of the transfers whose queue pairs the node itself listed, and no other node's port went down."""
    [incident] = [incident for incident in report["port_incidents"] if incident["times_down"]]
    assert (incident["host"], incident["device"], incident["port"], incident["times_down"], incident["down_at_end"]) == ("node0", "rxe0", 1, 1, False), incident
    up_ns = {event["time_ns"] for event in report["events"] if event["kind"] in ("carrier_up", "port_active")}
    [down_at_ns] = [event["time_ns"] for event in report["events"] if event["kind"] == "carrier_down"]
    assert incident["down_ns"] in {at_ns - down_at_ns for at_ns in up_ns}, (incident, up_ns)
    listed = {qpn for transfer in result["transfers"].values() for qpn in transfer["qpns"]}
    users = {qp["pid"] for qp in report["qps"] if qp["host"] == "node0" and qp["qpn"] in listed}
    assert users and users <= {process["pid"] for process in incident["processes"]}, (incident, users)
    assert not incident["communicators"], incident


def check_unseen(report, frames, name, fault, started_s):
    """No host can see the fault: one derived event of the connection that it hits and of no other. The other end may report gaps in what it got. Where the
    node stands still, it is as much later, and may be reported as several."""
    slack_s = standstill_s(frames, fault.start - EARLY_S, fault.over + LATE_S)
    found = [event for event in report["events"]
             if event["kind"] in ("retransmissions", "suspected_path_loss") and ends_s(event) > fault.start and starts_s(event) < fault.over + LATE_S]
    print(f"{name}: {fault.end - fault.start:.1f} s, over {fault.over - fault.end:.1f} s later; node 0 stood still for {slack_s:.2f} s")
    assert {event["kind"] for event in found} == {"suspected_path_loss"} and all(event["derived"] for event in found), found
    events = sorted((event for event in found if event["host"] == "node0"), key=starts_s)
    assert len(events) == 1 or (events and slack_s > APART_S), found
    for other in found:
        assert other in events or (other["host"] == "node2" and "out_of_seq_request" in other["evidence"]), found
    for event in events:
        assert (event["host"], event["device"], event["port"], event["peers"]) == ("node0", "rxe0", 1, ["node2"]), event
        assert event["evidence"]["retransmitted_frames"] > 0 and event["evidence"]["qps_retransmitting"] == 1, event
        assert "carrier did not change" in event["what"] and "beyond this port" in event["what"], event
        print(f"{name}: {event['what']}; starts {starts_s(event) - fault.start:+.1f} s, ends {ends_s(event) - fault.end:+.1f} s from it")
    begin_s, end_s = starts_s(events[0]), max(map(ends_s, events))
    assert fault.start - EARLY_S < begin_s < started_s + LATE_S + slack_s, f"{name}: starts {begin_s - fault.start:+.1f} s from it"
    assert end_s < fault.over + 2 * LATE_S + slack_s, f"{name}: ends {end_s - fault.end:+.1f} s from its end"


def check_run(arguments, out):
    faults = [word for fault in (CUT, LOSS, FLAP, NODE_CUT, STANDING_LOSS, TIMED) for word in ("--fault", fault)]
    harness.run_job(out, arguments.kernel, NODES, "recorded.sh", "--nics", "2", "--pcap", "--env", "RECORDED_JOB=fabric_faults.py", *faults)
    times = fault_times(out)
    results = [harness.load(out, f"node{node}", "result.json") for node in range(NODES)]
    frames = Frames(out)
    check_cut_frames(frames, times[CUT], times[LOSS])
    check_node_cut_frames(frames, times[NODE_CUT])
    check_flap_frames(frames, times[FLAP], times[LOSS], results)
    check_standing_loss_frames(frames, results)

    report = harness.collwire_report(out)
    outlived = check_traffic(report, results[0], arguments.kernel, times[FLAP])
    check_flap(report, times[FLAP], results[0]["seen"], outlived)
    check_incident(report, results[0])
    check_unseen(report, frames, "cut", times[CUT], times[CUT].started)
    # One frame in five is lost; which one is missed first is chance.
    check_unseen(report, frames, "loss", times[LOSS], times[LOSS].over)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
