# SPDX-License-Identifier: Apache-2.0
"""Sums of the frames that one queue pair sent, from a packet capture at the sender's port."""

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

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


class Sent(NamedTuple):
    time_s: float
    psn: int
    opcode: int
    wire_bytes: int
    payload_bytes: int
    retransmitted: bool


@dataclass
class Flow:
    """Sums over the frames of one sender; payload and classes are of first transmissions."""
    wire_bytes: int = 0
    ack_wire_bytes: int = 0
    request_wire_bytes: int = 0
    response_wire_bytes: int = 0
    retransmitted_wire_bytes: int = 0
    payload_bytes: int = 0
    frames: List[Sent] = field(default_factory=list)
    udp_sports: set = field(default_factory=set)
    # For senders that all begin with one PSN: a request after so long without one belongs to another queue pair, to which the device gave
    # a number that was free again.
    restart_s: Optional[float] = None
    _first_request: int = -1
    _last_request_s: float = 0
    _next_request: int = -1
    _next_response: int = -1

    def add(self, frame: Frame, path_mtu_bytes: int) -> None:
        self.wire_bytes += frame.wire_bytes
        self.udp_sports.add(frame.udp_sport)
        again = self._sent_before(frame, path_mtu_bytes)
        payload_bytes = 0
        if frame.is_ack:
            self.ack_wire_bytes += frame.wire_bytes
        elif again:
            self.retransmitted_wire_bytes += frame.wire_bytes
        else:
            if frame.is_response:
                self.response_wire_bytes += frame.wire_bytes
            else:
                self.request_wire_bytes += frame.wire_bytes
            if frame.is_ud or (frame.operation not in ATOMIC_REQUESTS and frame.operation != READ_REQUEST):
                payload_bytes = frame.payload_bytes
                self.payload_bytes += payload_bytes
        self.frames.append(Sent(frame.time_s, frame.psn, frame.opcode, frame.wire_bytes, payload_bytes, again))

    def _sent_before(self, frame: Frame, path_mtu_bytes: int) -> bool:
        if frame.is_ack or frame.is_ud:
            return False
        if frame.is_response:
            again, self._next_response = _advance(self._next_response, frame.psn, 1)
            return again
        if self._first_request < 0:
            self._first_request = frame.psn
        if self.restart_s is not None and frame.psn == self._first_request and frame.time_s - self._last_request_s > self.restart_s:
            self._next_request = -1
        self._last_request_s = frame.time_s
        span = 1
        if frame.operation == READ_REQUEST:
            span = max(1, -(-frame.dma_bytes // path_mtu_bytes))
        again, self._next_request = _advance(self._next_request, frame.psn, span)
        return again


# A sender goes back by unacknowledged packets, which are far fewer. A PSN further away is of another queue pair, to which the device gave a number
# that was free again: its first PSN is random.
_GO_BACK_PACKETS = 4096


def _advance(expected: int, psn: int, span: int) -> Tuple[bool, int]:
    """Whether the PSN was sent before, and the next new one. 24-bit arithmetic."""
    if expected >= 0 and 0 < (expected - psn) % PSN_MODULUS <= _GO_BACK_PACKETS:
        return True, expected
    return False, (psn + span) % PSN_MODULUS


def key_of(frame: Frame) -> FlowKey:
    if frame.source_qpn is not None:
        return Datagram(frame.source, frame.source_qpn)
    return Connected(frame.source, frame.destination, frame.dest_qpn)


def flows_from(frames: Iterable[Frame], source: str, path_mtu_bytes: int, restart_s: Optional[float] = None) -> Dict[FlowKey, Flow]:
    """What the node with the address `source` sent, by flow."""
    flows: Dict[FlowKey, Flow] = {}
    for frame in frames:
        if frame.kind == "roce" and frame.source == source:
            flows.setdefault(key_of(frame), Flow(restart_s=restart_s)).add(frame, path_mtu_bytes)
    return flows
