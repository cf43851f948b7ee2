#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds reports against the packet captures of one lab run: compare.py LAB_DIR [--wire REPORT] [--posted REPORT] [--from-first REPORT] ...

Every queue pair's bytes must equal tshark's, every frame on the wire must belong to a queue pair of the report, and every link's
counter must equal the frames in its packet capture. Prints tables; exit status 1: something differs."""

import argparse
import copy
import ipaddress
import json
import math
import os
import sys
from collections import defaultdict
from datetime import datetime, timezone
from typing import Dict, Iterator, List, Optional, Tuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from flows import Connected, Datagram, Flow, FlowKey, flows_from
from frames import Frame, ipv4_of, read_frames

# The clocks of nodes and host may be this far apart.
_CLOCK_TOLERANCE_S = 1.0

LAB_MAC_PREFIX = "52:54:00:00:"


def address_of(gid: Optional[str]) -> Optional[str]:
    if not gid:
        return None
    mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    address = str(mapped) if mapped else ipv4_of(gid)
    return address if address != gid else None


def mac_of(port: dict) -> str:
    """Of a lab node's NIC: the last two bytes are the NIC and node + 1."""
    return f"{LAB_MAC_PREFIX}{int(port['device'][len('rxe'):]):02x}:{int(port['host'][len('node'):]) + 1:02x}"


class Packets(dict):
    """Link name -> its frames, read from its file when they are first needed. `paths`: link name -> file."""

    def __init__(self, paths: Dict[str, str]):
        super().__init__()
        self._paths = paths

    def __missing__(self, link: str) -> List[Frame]:
        self[link] = list(read_frames(self._paths[link]))
        return self[link]


class PartOfPackets(dict):
    """Link name -> its frames of a time, out of those of all the time."""

    def __init__(self, packets: Dict[str, List[Frame]], begin_s: float, end_s: float):
        super().__init__()
        self._packets, self._begin_s, self._end_s = packets, begin_s, end_s

    def __missing__(self, link: str) -> List[Frame]:
        self[link] = [frame for frame in self._packets[link] if self._begin_s <= frame.time_s < self._end_s]
        return self[link]


class Fabric:
    """The lab's own files: links with their counters, ports, packets."""

    def __init__(self, directory: str, path_mtu_bytes: int, restart_s: Optional[float] = None):
        self.directory = directory
        with open(os.path.join(directory, "fabric", "links.json"), encoding="utf-8") as file:
            self.links = json.load(file)
        with open(os.path.join(directory, "topology.json"), encoding="utf-8") as file:
            self.ports = json.load(file)["ports"]
        # The uplink of leaf<L> is captured at its leaf's end.
        names = {link["name"]: f"up{link['a'][len('leaf'):]}" if link["b"].startswith("spine") else link["name"] for link in self.links}
        self.packets = Packets({link: os.path.join(directory, "fabric", f"{name}.pcap") for link, name in names.items()})
        self._path_mtu_bytes, self._restart_s = path_mtu_bytes, restart_s
        self._sum_up()

    def _sum_up(self) -> None:
        self.flows: Dict[FlowKey, Flow] = {}
        self.received: Dict[Tuple[str, int], int] = defaultdict(int)  # (address, QPN): what was sent to it
        self.datagrams: Dict[Tuple[str, int, str, int], int] = defaultdict(int)  # both ends
        for port in self.ports:
            self.flows.update(flows_from(self.packets[port["switch_port"]], port["ip"], self._path_mtu_bytes, self._restart_s))
            for frame in self.sent_by(port):
                self.received[(frame.destination, frame.dest_qpn)] += frame.wire_bytes
                if frame.source_qpn is not None:
                    self.datagrams[(frame.source, frame.source_qpn, frame.destination, frame.dest_qpn)] += frame.wire_bytes

    def between(self, begin_s: float, end_s: float) -> "Fabric":
        """The same with the frames of this time only. The links' counters stay those of the whole run."""
        part = copy.copy(self)
        part.packets = PartOfPackets(self.packets, begin_s, end_s)
        part._sum_up()
        return part

    def sent_by(self, port: dict) -> Iterator[Frame]:
        return (frame for frame in self.packets[port["switch_port"]] if frame.kind == "roce" and frame.source == port["ip"])

    def port_of(self, host: str, device: str) -> dict:
        return next(port for port in self.ports if (port["host"], port["device"]) == (host, device))

    def tier_between(self, source: str, destination: str) -> str:
        """The lab's fabric has one spine, and a leaf switch for two nodes."""
        switches = {port["ip"]: port["switch"] for port in self.ports}
        return "leaf" if switches[source] == switches[destination] else "spine"

    def tier_bytes(self) -> Dict[str, int]:
        """RoCE bytes that the nodes sent, apart for those that climbed to the spine."""
        leaf_of = {port["host"]: port["switch"] for port in self.ports}
        spine = sum(frame.wire_bytes for link in self.links if link["b"].startswith("spine") for frame in self.packets[link["name"]]
                    if frame.kind == "roce" and self._side(link, frame, leaf_of) == "a")
        total = sum(frame.wire_bytes for port in self.ports for frame in self.sent_by(port))
        return {"leaf": total - spine, "spine": spine}

    def key_of(self, qp: dict) -> Optional[FlowKey]:
        """The flow that this queue pair's frames make on the wire; None while it had no address."""
        source = self.port_of(qp["host"], qp["device"])["ip"]
        if qp["type"] in ("UD", "GSI"):
            return Datagram(source, qp["qpn"])
        destination = address_of(qp["remote_gid"])
        if not destination or qp["remote_qpn"] is None:
            return None
        return Connected(source, destination, qp["remote_qpn"])

    def link_rows(self) -> List[Tuple[str, int, int, Dict[str, int]]]:
        """(direction, counter, captured, bytes by kind) of each link and direction."""
        leaf_of = {port["host"]: port["switch"] for port in self.ports}
        rows = []
        for link in self.links:
            captured = {side: defaultdict(int) for side in ("a", "b")}
            for frame in self.packets[link["name"]]:
                captured[self._side(link, frame, leaf_of)][frame.kind] += frame.wire_bytes
            for side, other in (("a", "b"), ("b", "a")):
                name = f"{link[side]} -> {link[other]} ({link['name']})"
                rows.append((name, link[f"{side}_to_{other}_bytes"], sum(captured[side].values()), dict(captured[side])))
        return rows

    @staticmethod
    def _side(link: dict, frame: Frame, leaf_of: Dict[str, str]) -> str:
        """Which end of the link sent the frame: lab MAC addresses end in node + 1."""
        assert frame.ethernet_source.startswith(LAB_MAC_PREFIX), f"a frame of {frame.ethernet_source}, which is no node"
        node = f"node{int(frame.ethernet_source.rsplit(':', 1)[1], 16) - 1}"
        near = {node, leaf_of[node]}
        if link["a"] in (node,) or link["b"] in (node,):
            return "a" if link["a"] == node else "b"
        if link["a"] in near or link["b"] in near:
            return "a" if link["a"] in near else "b"
        return "a" if link["a"].startswith("spine") else "b"  # on the way down


class Clocks:
    """Seconds since the epoch of the monotonic times in a report, by host."""

    def __init__(self, report: dict):
        self._begin = {host["name"]: host["recordings"][0] for host in report["hosts"]}

    def epoch_s(self, host: str, time_ns: int) -> float:
        begin = self._begin[host]
        return _epoch_s(begin["begin"]) + (time_ns - begin["begin_ns"]) / 1e9

    def begin_s(self, host: str) -> float:
        return _epoch_s(self._begin[host]["begin"])

    def end_s(self, host: str) -> float:
        return _epoch_s(self._begin[host]["end"])


class Comparison:
    def __init__(self, fabric: Fabric, report: dict):
        self.fabric = fabric
        self.report = report
        self.qps = report["qps"]
        self.clocks = Clocks(report)
        self.failures: List[str] = []
        self.compared = 0

    def expect(self, what: str, ours: Optional[int], truth: int) -> None:
        self.compared += 1
        if ours != truth:
            difference = "not measured" if ours is None else f"difference {ours - truth:+d}"
            self.failures.append(f"{what}: collwire {ours}, tshark {truth}, {difference}")

    def grouped(self) -> Dict[FlowKey, List[dict]]:
        """Queue pairs by flow: a number that is used again gives several for one flow."""
        groups: Dict[FlowKey, List[dict]] = defaultdict(list)
        for qp in self.qps:
            key = self.fabric.key_of(qp)
            if key is not None and qp["tier"] != "self":
                groups[key].append(qp)
        return groups

    def links(self) -> None:
        for name, counter, captured, kinds in self.fabric.link_rows():
            if counter != captured:
                self.failures.append(f"link {name}: counter {counter}, frames {captured} {kinds}")
            self.compared += 1
            print(f"  {name:32} counter {counter:>12} = roce {kinds.get('roce', 0)} + arp {kinds.get('arp', 0)} + "
                  f"tcp {kinds.get('tcp', 0)} + other {kinds.get('other', 0)}, difference {counter - captured}")

    def tiers(self, packets_counted: bool) -> None:
        """The tier of every destination, and where packets are counted the sums, by what crossed the uplinks."""
        for key, qps in self.grouped().items():
            for qp in qps:
                name = f"{qp['host']} qp {qp['qpn']} {qp['type']}"
                if isinstance(key, Connected):
                    self.expect_same(f"{name} tier", qp["tier"], self.fabric.tier_between(key.source, key.destination))
                    continue
                for peer in qp.get("peers") or []:
                    expected = self.fabric.tier_between(key.source, address_of(peer["gid"]))
                    self.expect_same(f"{name} tier to {peer['gid']}", peer["tier"], expected)
        if packets_counted:
            for tier, truth in self.fabric.tier_bytes().items():
                self.expect(f"tier {tier} tx_wire_bytes", self.report["tiers"][tier]["tx_wire_bytes"], truth)
                print(f"  {tier}: {truth} bytes by the uplinks")

    def expect_same(self, what: str, ours: str, truth: str) -> None:
        self.compared += 1
        if ours != truth:
            self.failures.append(f"{what}: collwire {ours}, the fabric {truth}")

    def receivers(self, lossy: bool) -> None:
        """What each queue pair received is what was sent to it; where frames are dropped on the way, no more than that."""
        received: Dict[Tuple[str, int], int] = defaultdict(int)
        for qp in self.qps:
            if qp["tier"] != "self":
                received[(self.fabric.port_of(qp["host"], qp["device"])["ip"], qp["qpn"])] += qp["rx_wire_bytes"] or 0
        for key in sorted(set(received) | set(self.fabric.received)):
            ours, sent = received[key], self.fabric.received[key]
            if not lossy or ours > sent:
                self.expect(f"{key[0]} qp {key[1]} rx_wire_bytes", ours, sent)

    def datagrams(self) -> None:
        """Every destination of every datagram queue pair."""
        ours: Dict[Tuple[str, int, str, int], int] = defaultdict(int)
        for qp in self.qps:
            source = self.fabric.port_of(qp["host"], qp["device"])["ip"]
            for peer in qp.get("peers") or []:
                if peer["tier"] != "self":
                    ours[(source, qp["qpn"], address_of(peer["gid"]), peer["qpn"])] += peer["tx_wire_bytes"]
        for key in sorted(set(ours) | set(self.fabric.datagrams)):
            self.expect(f"datagrams {key} tx_wire_bytes", ours[key], self.fabric.datagrams[key])

    def ports(self) -> None:
        """The port's counter is what the link carried meanwhile, and what collwire does not explain of it is no RoCE."""
        for ours in self.report["ports"]:
            port = self.fabric.port_of(ours["host"], ours["device"])
            name = f"{ours['host']} {ours['device']}"
            self.expect(f"{name} explained_tx_bytes", ours["explained_tx_bytes"], sum(frame.wire_bytes for frame in self.fabric.sent_by(port)))
            self.expect(f"{name} explained + unexplained", ours["explained_tx_bytes"] + ours["unexplained_tx_bytes"], ours["tx_wire_bytes"])
            begin_s, end_s = self.clocks.begin_s(ours["host"]), self.clocks.end_s(ours["host"])
            others = [frame for frame in self.fabric.packets[port["switch_port"]]
                      if frame.kind != "roce" and frame.ethernet_source == mac_of(port)]
            surely, perhaps = (sum(frame.wire_bytes for frame in others if begin_s + margin_s < frame.time_s < end_s - margin_s)
                               for margin_s in (_CLOCK_TOLERANCE_S, -_CLOCK_TOLERANCE_S))
            allowed = ours["uncertainty_bytes"]
            self.compared += 1
            if not surely - allowed <= ours["unexplained_tx_bytes"] <= perhaps + allowed:
                self.failures.append(f"{name} unexplained_tx_bytes: {ours['unexplained_tx_bytes']}, tshark {surely} to {perhaps}, +- {allowed}")
            print(f"  {name}: unexplained {ours['unexplained_tx_bytes']} +- {allowed}, no RoCE: {surely} to {perhaps}")

    def wire(self) -> None:
        groups = self.grouped()
        for key, flow in self.fabric.flows.items():
            qps = groups.get(key)
            if not qps:
                self.failures.append(f"{key}: {flow.wire_bytes} bytes on the wire, no queue pair in the report")
                continue
            name = f"{qps[0]['host']} qp {qps[0]['qpn']} {qps[0]['type']}"
            total = {field: _sum(qps, field) for field in ("tx_wire_bytes", "tx_payload_bytes", "retransmitted_wire_bytes")}
            self.expect(f"{name} tx_wire_bytes", total["tx_wire_bytes"], flow.wire_bytes)
            self.expect(f"{name} tx_payload_bytes", total["tx_payload_bytes"], flow.payload_bytes)
            self.expect(f"{name} retransmitted_wire_bytes", total["retransmitted_wire_bytes"], flow.retransmitted_wire_bytes)
            self._each_generation(qps, flow)
            print(f"  {name:22} wire {flow.wire_bytes:>11} payload {flow.payload_bytes:>11} ack {flow.ack_wire_bytes:>8} "
                  f"retransmitted {flow.retransmitted_wire_bytes:>8}")
        self._none_without_frames(groups)

    def _each_generation(self, qps: List[dict], flow: Flow) -> None:
        """A number that was used again: each queue pair has the frames from its first one up to the first of the next."""
        if len(qps) > 1:
            qps = sorted((qp for qp in qps if qp["tx_wire_bytes"]), key=lambda qp: qp["generation_ns"])
            for qp, following in zip(qps, qps[1:] + [None]):
                self._direction_from_first(qp, following, "tx", flow)

    def from_first(self, answers_too: bool = True) -> None:
        """Recorders that started late: each direction of a queue pair against what tshark has from the frame on that the report
        names as its first, by PSN, opcode and time. A queue pair without one must have sent nothing since the recorder started.
        answers_too: also the frames that were sent to it, which is right if no process exits before its last answer arrives."""
        self.none_unknown()
        for key, qps in self.grouped().items():
            flow = self.fabric.flows.get(key)
            # Of one number that is used again, each has the frames up to the first of the next.
            qps = sorted(qps, key=lambda qp: qp["generation_ns"])
            for qp, following in zip(qps, qps[1:] + [None]):
                self._direction_from_first(qp, following, "tx", flow)
                if answers_too and isinstance(key, Connected) and qp["preexisting"]:
                    answers = self.fabric.flows.get(Connected(key.destination, key.source, qp["qpn"]))
                    self._direction_from_first(qp, following, "rx", answers)

    def none_unknown(self) -> None:
        groups = self.grouped()
        for key, flow in self.fabric.flows.items():
            if key not in groups and flow.frames[-1].time_s > min(self.clocks.begin_s(host) for host in self.hosts()):
                self.failures.append(f"{key}: frames on the wire while recorded, no queue pair in the report")

    def hosts(self) -> List[str]:
        return sorted({qp["host"] for qp in self.qps})

    def _first(self, qp: dict, direction: str) -> Optional[dict]:
        return ((qp.get("wire") or {}).get(direction) or {}).get("first")

    def _first_index(self, qp: dict, direction: str, frames: list) -> Optional[int]:
        """Of the frame that the report names as the queue pair's first; None if there is no such frame at that time."""
        first = self._first(qp, direction)
        at_s = self.clocks.epoch_s(qp["host"], first["time_ns"])
        same = [index for index, frame in enumerate(frames) if (frame.psn, frame.opcode) == (first["psn"], first["opcode"])]
        nearest = min(same, key=lambda index: abs(frames[index].time_s - at_s), default=None)
        return None if nearest is None or abs(frames[nearest].time_s - at_s) > _CLOCK_TOLERANCE_S else nearest

    def _direction_from_first(self, qp: dict, following: Optional[dict], direction: str, flow: Optional[Flow]) -> None:
        name = f"{qp['host']} qp {qp['qpn']} {qp['type']} {direction}"
        frames = flow.frames if flow else []
        if following and self._first(following, direction):
            frames = frames[:self._first_index(following, direction, frames)]
        first = self._first(qp, direction)
        if first is None:
            since = [frame for frame in frames if frame.time_s > self.clocks.begin_s(qp["host"])]
            self.expect(f"{name}: frames since the recorder started, none counted", 0, len(since))
            return
        at_s = self.clocks.epoch_s(qp["host"], first["time_ns"])
        start = self._first_index(qp, direction, frames)
        if start is None:
            self.failures.append(f"{name}: no frame of PSN {first['psn']}, opcode {first['opcode']} on the wire at {at_s:.3f}")
            return
        rest = frames[start:]
        wire = sum(frame.wire_bytes for frame in rest)
        self.expect(f"{name} {direction}_wire_bytes from PSN {first['psn']}", qp[f"{direction}_wire_bytes"], wire)
        if direction == "tx":
            self.expect(f"{name} tx_payload_bytes from PSN {first['psn']}", qp["tx_payload_bytes"],
                        sum(frame.payload_bytes for frame in rest))
        print(f"  {name:22} first PSN {first['psn']:>8} opcode {first['opcode']:>3}, frame {start + 1} of {len(frames)}, "
              f"{(frames[start].time_s - at_s) * 1e3:+.1f} ms; wire {wire:>9} of {flow.wire_bytes:>9}")

    def posted(self) -> None:
        """Requests as computed from work requests, and the answers to READ and ATOMIC as computed from the peer's: what was
        sent once. What the wire has beyond that must be acknowledgements and retransmissions, to the byte."""
        groups = self.grouped()
        for key, flow in self.fabric.flows.items():
            qps = groups.get(key)
            if not qps:
                self.failures.append(f"{key}: {flow.wire_bytes} bytes on the wire, no queue pair in the report")
                continue
            name = f"{qps[0]['host']} qp {qps[0]['qpn']} {qps[0]['type']}"
            rungs = {qp["bytes_rung"] for qp in qps}
            if all(qp["owner"] == "kernel" and qp["qpn"] == 1 for qp in qps):
                print(f"  {name:22} of the kernel, whose posts pass no probe: {rungs}")
                if rungs != {"none"}:
                    self.failures.append(f"{name}: the byte source of the kernel's queue pair is {rungs}")
                continue
            if rungs != {"posted"}:
                self.failures.append(f"{name}: bytes_rung {rungs}, not posted")
                continue
            payload = sum(frame.payload_bytes for frame in flow.frames if not _is_response(frame))
            known = _sum(qps, "tx_wire_bytes")
            self.expect(f"{name} tx_wire_bytes", known, flow.request_wire_bytes + flow.response_wire_bytes)
            self.expect(f"{name} tx_payload_bytes", _sum(qps, "tx_payload_bytes"), payload)
            self.expect(f"{name} tx_response_wire_bytes", _sum(qps, "tx_response_wire_bytes") or 0, flow.response_wire_bytes)
            print(f"  {name:22} wire {flow.wire_bytes:>11} = posted {known or 0:>11} + ack {flow.ack_wire_bytes:>8} + "
                  f"retransmitted {flow.retransmitted_wire_bytes:>8}")
        self._none_without_frames(groups)

    def _none_without_frames(self, groups: Dict[FlowKey, List[dict]]) -> None:
        for key, qps in groups.items():
            if key not in self.fabric.flows:
                for qp in qps:
                    self.expect(f"{qp['host']} qp {qp['qpn']} tx_wire_bytes (no frame on the wire)", qp["tx_wire_bytes"] or 0, 0)


def _epoch_s(text: str) -> float:
    """Of a time of the report, such as 2026-01-02T03:04:16.123456789Z."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment.timestamp() + float(f"0.{fraction or 0}")


def _is_response(sent) -> bool:
    return sent.opcode >> 5 != 3 and (sent.opcode & 0x1F) in (13, 14, 15, 16, 18)


def _sum(qps: List[dict], field: str) -> Optional[int]:
    values = [qp[field] for qp in qps]
    return None if any(value is None for value in values) else sum(values)


def compare_wire(comparison: Comparison, lossy: bool) -> None:
    comparison.wire()
    print("ports, receivers:")
    comparison.receivers(lossy)
    comparison.datagrams()
    comparison.ports()
    comparison.tiers(packets_counted=True)


def compare_posted(comparison: Comparison) -> None:
    comparison.posted()
    comparison.tiers(packets_counted=False)


def compare_from_first(comparison: Comparison) -> None:
    comparison.from_first()
    comparison.tiers(packets_counted=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab")
    parser.add_argument("--wire", metavar="REPORT", help="a report of recorders that counted packets")
    parser.add_argument("--posted", metavar="REPORT", help="a report of recorders with --no-wire --posts=on")
    parser.add_argument("--from-first", metavar="REPORT", help="a report of recorders that started in the middle")
    parser.add_argument("--border", type=float, metavar="S", help="seconds since the epoch: --wire and --posted ended before, --from-first began after")
    parser.add_argument("--lossy", action="store_true", help="frames were dropped: some must have been retransmitted")
    parser.add_argument("--path-mtu", type=int, default=1024)
    arguments = parser.parse_args()
    fabric = Fabric(arguments.lab, arguments.path_mtu)
    before, after = (fabric, fabric) if arguments.border is None else (fabric.between(0, arguments.border), fabric.between(arguments.border, math.inf))
    failures, compared = [], 0
    for name, path, part, compare in (("wire", arguments.wire, before, lambda one: compare_wire(one, arguments.lossy)),
                                      ("posted", arguments.posted, before, compare_posted),
                                      ("from-first", arguments.from_first, after, compare_from_first)):
        if path is None:
            continue
        with open(path, encoding="utf-8") as file:
            comparison = Comparison(part, json.load(file))
        print(f"queue pairs, as tshark has them: {name}")
        compare(comparison)
        if comparison.compared == 0:
            failures.append(f"{name}: nothing was compared")
        failures += comparison.failures
        compared += comparison.compared
    print("links:")
    links = Comparison(fabric, {"qps": [], "hosts": []})
    links.links()
    failures += links.failures
    compared += links.compared
    if arguments.lossy and not any(flow.retransmitted_wire_bytes for flow in before.flows.values()):
        failures.append("no frame was retransmitted although frames were lost")
    for failure in failures:
        print(f"DIFFERENT: {failure}")
    print(f"{compared} figures compared, {len(failures)} different")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
