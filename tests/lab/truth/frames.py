# SPDX-License-Identifier: Apache-2.0
"""Frames of a packet capture as tshark dissects them. Nothing here comes from collwire."""

import ipaddress
import subprocess
from typing import Iterator, NamedTuple, Optional

ROCE_UDP_PORT = 4791
PSN_MODULUS = 1 << 24

# BTH opcode without its transport bits (InfiniBand Architecture Specification volume 1, table "Packet opcodes").
READ_REQUEST = 12
READ_RESPONSES = {13, 14, 15, 16}
ACKNOWLEDGE = 17
ATOMIC_ACKNOWLEDGE = 18
ATOMIC_REQUESTS = {19, 20}
TRANSPORT_UD = 3
CONGESTION_NOTIFICATION = 0x81

_BTH_BYTES = 12
_ICRC_BYTES = 4
_UDP_BYTES = 8
_DETH_BYTES = 8
_LINK_LOCAL = ipaddress.IPv6Address("fe80::5054:ff:fe00:0").packed[:14]
_EXTENSION_BYTES = {
    3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 12: 16, 13: 4, 15: 4, 16: 4, 17: 4, 18: 12, 19: 28, 20: 28, 22: 4, 23: 4,
}

_FIELDS = [
    "frame.time_epoch", "frame.len", "eth.src", "eth.type", "ip.src", "ip.dst", "ip.proto", "ipv6.src", "ipv6.dst",
    "udp.srcport", "udp.dstport", "udp.length",
    "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.padcnt",
    "infiniband.deth.srcqp", "infiniband.reth.dmalen",
]


class Frame(NamedTuple):
    time_s: float
    wire_bytes: int
    ethernet_source: str
    kind: str  # roce, arp, tcp, other
    source: str = ""
    destination: str = ""
    udp_sport: int = 0
    opcode: int = 0
    dest_qpn: int = 0
    psn: int = 0
    payload_bytes: int = 0
    source_qpn: Optional[int] = None  # UD only
    dma_bytes: int = 0  # READ request

    @property
    def operation(self) -> int:
        return self.opcode & 0x1F

    @property
    def is_ud(self) -> bool:
        return self.opcode >> 5 == TRANSPORT_UD

    @property
    def is_ack(self) -> bool:
        return self.opcode == CONGESTION_NOTIFICATION or (not self.is_ud and self.operation == ACKNOWLEDGE)

    @property
    def is_response(self) -> bool:
        return not self.is_ud and (self.operation in READ_RESPONSES or self.operation == ATOMIC_ACKNOWLEDGE)


def ipv4_of(address: str) -> str:
    """The IPv4 address of the NIC of the lab that has this address: the link-local one is made of its MAC address 52:54:00:00:<NIC>:<node + 1>, which
    is 10.0.<NIC>.<node + 1> (docs/lab.md). Other addresses stay."""
    numbers = ipaddress.ip_address(address).packed
    return f"10.0.{numbers[14]}.{numbers[15]}" if numbers[:14] == _LINK_LOCAL else address


def _number(text: str) -> int:
    text = text.split(",")[0]
    return int(text, 0) if text else 0


def _payload_bytes(opcode: int, udp_length: int, pad_bytes: int) -> int:
    operation = opcode & 0x1F
    if opcode >> 5 == TRANSPORT_UD:
        extension = _DETH_BYTES + (4 if operation in (5, 3) else 0)
    else:
        extension = _EXTENSION_BYTES.get(operation, 0)
        if operation == ATOMIC_ACKNOWLEDGE:
            return 8
    return udp_length - _UDP_BYTES - _BTH_BYTES - extension - pad_bytes - _ICRC_BYTES


def _parse(line: str) -> Frame:
    cell = dict(zip(_FIELDS, line.rstrip("\n").split("\t")))
    start = (float(cell["frame.time_epoch"]), int(cell["frame.len"]), cell["eth.src"])
    if cell["infiniband.bth.opcode"] and _number(cell["udp.dstport"]) == ROCE_UDP_PORT:
        opcode = _number(cell["infiniband.bth.opcode"])
        srcqp = cell["infiniband.deth.srcqp"]
        source, destination = (ipv4_of(cell[f"ip.{end}"] or cell[f"ipv6.{end}"]) for end in ("src", "dst"))
        return Frame(
            *start, "roce", source, destination, _number(cell["udp.srcport"]), opcode,
            _number(cell["infiniband.bth.destqp"]), _number(cell["infiniband.bth.psn"]),
            _payload_bytes(opcode, _number(cell["udp.length"]), _number(cell["infiniband.bth.padcnt"])),
            _number(srcqp) if srcqp else None, _number(cell["infiniband.reth.dmalen"]))
    if _number(cell["eth.type"] or "0") == 0x0806:
        return Frame(*start, "arp")
    if cell["ip.proto"].split(",")[0] == "6":
        return Frame(*start, "tcp", cell["ip.src"], cell["ip.dst"])
    return Frame(*start, "other", cell["ip.src"], cell["ip.dst"])


def read_frames(path: str) -> Iterator[Frame]:
    """Every frame of the packet capture, in its order. RuntimeError if tshark cannot read all of it."""
    command = ["tshark", "-n", "-r", path, "-T", "fields", "-o", "ip.defragment:FALSE"]
    for field in _FIELDS:
        command += ["-e", field]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield _parse(line)
        errors = process.stderr.read()
        if process.wait() != 0:
            raise RuntimeError(f"tshark failed on {path}: {errors.strip()}")
