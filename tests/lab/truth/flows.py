# SPDX-License-Identifier: Apache-2.0
"""Sums of the frames that one queue pair sent, from a packet capture at the sender's port."""

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, NamedTuple, Tuple, Union

from frames import ATOMIC_REQUESTS, Frame, PSN_MODULUS, READ_REQUEST


class Connected(NamedTuple):
    """RC, UC: the frame does not name its sender, but only one queue pair is connected to this destination."""
    source: str
    destination: str
    dest_qpn: int


class Datagram(NamedTuple):
    source: str
    source_qpn: int


FlowKey = Union[Connected, Datagram]


@dataclass
class Sums:
    frames: int = 0
    wire_bytes: int = 0
    ack_wire_bytes: int = 0
    request_wire_bytes: int = 0  # first transmissions
    response_wire_bytes: int = 0
    retransmitted_wire_bytes: int = 0
    retransmitted_frames: int = 0
    payload_bytes: int = 0  # of first transmissions; requests of atomics carry none, their answers 8


@dataclass
class Flow:
    sums: Sums = field(default_factory=Sums)
    frames: List[Tuple[float, int, int, int]] = field(default_factory=list)  # time_s, psn, opcode, wire_bytes
    udp_sports: set = field(default_factory=set)
    _next_request: int = -1
    _next_response: int = -1

    def add(self, frame: Frame, path_mtu_bytes: int) -> None:
        sums = self.sums
        sums.frames += 1
        sums.wire_bytes += frame.wire_bytes
        self.udp_sports.add(frame.udp_sport)
        self.frames.append((frame.time_s, frame.psn, frame.opcode, frame.wire_bytes))
        if frame.is_ack:
            sums.ack_wire_bytes += frame.wire_bytes
            return
        if frame.is_ud:
            sums.request_wire_bytes += frame.wire_bytes
            sums.payload_bytes += frame.payload_bytes
            return
        if frame.is_response:
            again, self._next_response = _advance(self._next_response, frame.psn, 1)
        else:
            span = 1
            if frame.operation == READ_REQUEST:
                span = max(1, -(-frame.dma_bytes // path_mtu_bytes))
            again, self._next_request = _advance(self._next_request, frame.psn, span)
        if again:
            sums.retransmitted_wire_bytes += frame.wire_bytes
            sums.retransmitted_frames += 1
            return
        if frame.is_response:
            sums.response_wire_bytes += frame.wire_bytes
        else:
            sums.request_wire_bytes += frame.wire_bytes
        if frame.operation not in ATOMIC_REQUESTS and frame.operation != READ_REQUEST:
            sums.payload_bytes += frame.payload_bytes


def _advance(expected: int, psn: int, span: int) -> Tuple[bool, int]:
    """Whether the PSN was sent before, and the next new one. 24-bit arithmetic."""
    if expected >= 0 and (psn - expected) % PSN_MODULUS >= PSN_MODULUS // 2:
        return True, expected
    return False, (psn + span) % PSN_MODULUS


def key_of(frame: Frame) -> FlowKey:
    if frame.source_qpn is not None:
        return Datagram(frame.source, frame.source_qpn)
    return Connected(frame.source, frame.destination, frame.dest_qpn)




def collect(frames: Iterable[Frame], path_mtu_bytes: int) -> Tuple[Dict[FlowKey, Flow], Dict[str, int]]:
    """Flows by key, and bytes by kind of frame (roce, arp, tcp, other)."""
    flows: Dict[FlowKey, Flow] = {}
    kinds = {"roce": 0, "arp": 0, "tcp": 0, "other": 0}
    for frame in frames:
        kinds[frame.kind] += frame.wire_bytes
        if frame.kind == "roce":
            flows.setdefault(key_of(frame), Flow()).add(frame, path_mtu_bytes)
    return flows, kinds
