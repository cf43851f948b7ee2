# SPDX-License-Identifier: Apache-2.0
"""What NVLink SHARP moves, from the definition of the algorithm: for each channel and head the steps and the bytes, for each rank the messages to the same
head on other nodes. The facts are NCCL's (enqueue.cc calcCollChunking, device/all_reduce.h, all_gather.h, reduce_scatter.h)."""

import collections
import dataclasses
import re

HEAD_LINE = re.compile(r"NVLS Head +(\d+):((?: +\d+)+)")
# Rank and up: of even and of odd channels. 2.20 does not print all that is down.
TREE_LINE = re.compile(r"NVLS Trees : [-\d/]+->(\d+)->(-?\d+) [-\d/]+->\d+->(-?\d+)")
SLOT_BYTES = 4 << 20 >> 3 # of a Simple connection, by default
CHUNK_BYTES = 128 << 10
FIRST_WITH_CHUNKS_BY_CHANNEL = (2, 22)
PARTS = {"AllReduce": {"scatter", "gather", "reduce", "broadcast"}, "AllGather": {"gather", "broadcast"}, "ReduceScatter": {"scatter", "reduce"}}
TO_SWITCH = {"scatter", "broadcast"} # a head loads what the ranks have scattered


@dataclasses.dataclass
class Shape:
    version: tuple
    nodes: int
    ranks: int
    channels: int
    heads: list      # their ranks: [head][node]
    neighbours: dict # (rank, channel modulo 2) -> ranks up and down the tree

    def head_of(self, rank):
        return next((head for head, ranks in enumerate(self.heads) if rank in ranks), None)


def shape_of(version, nodes, ranks, channels, output):
    """From what NCCL prints: `output` of all ranks. On one node every rank is a head, and NCCL prints none."""
    if nodes == 1:
        return Shape(version, 1, ranks, channels, [[rank] for rank in range(ranks)], collections.defaultdict(list))
    heads = {int(head): [int(rank) for rank in of_nodes.split()] for head, of_nodes in HEAD_LINE.findall(output)}
    neighbours = collections.defaultdict(list)
    for rank, *ups in TREE_LINE.findall(output):
        for parity, up in enumerate(ups):
            if int(up) >= 0:
                neighbours[int(rank), parity].append(int(up))
                neighbours[int(up), parity].append(int(rank))
    return Shape(version, nodes, ranks, channels, [heads[head] for head in sorted(heads)], neighbours)


def chunk_bytes_of(shape, function, part_bytes, call_bytes):
    """Of one head in one step. Up to 2.21 all channels have the same, and NCCL counts them times the ranks where it counts bytes times the ranks."""
    operation, algorithm = function
    of_chunk = part_bytes
    heads = len(shape.heads)
    if shape.version < FIRST_WITH_CHUNKS_BY_CHANNEL:
        of_chunk, heads = call_bytes, heads * shape.channels * (shape.ranks if operation != "AllReduce" else 1)
    if operation != "AllReduce":
        of_chunk *= shape.ranks
    if algorithm == "NVLS":
        chunk, limits = CHUNK_BYTES, ((64, 65536), (8, 32768), (2, 16384))
    else:
        chunk = SLOT_BYTES if shape.version < FIRST_WITH_CHUNKS_BY_CHANNEL else CHUNK_BYTES
        chunk = min(chunk, 65536) if shape.nodes >= 4 else chunk
        limits = ((32, 262144), (16, 131072), (4, 65536), (1, 32768))
    for times, smaller in limits:
        if of_chunk < times * heads * chunk and chunk > smaller:
            chunk = smaller
    return chunk


def last_grain_bytes(shape, algorithm):
    if shape.version < FIRST_WITH_CHUNKS_BY_CHANNEL:
        return 4096
    return 16384 if algorithm == "NVLS" else 16


def round_up(number, grain):
    return -(-number // grain) * grain


def heads_of_part(shape, function, part_bytes, call_bytes, type_bytes):
    """[(steps, bytes)] of each head on a channel."""
    chunk = chunk_bytes_of(shape, function, part_bytes, call_bytes)
    if function[0] != "AllReduce":
        return [(-(-part_bytes // chunk), part_bytes)] * len(shape.heads)
    loops, rest = divmod(part_bytes, chunk * len(shape.heads))
    each = -(-(rest // type_bytes) // len(shape.heads)) * type_bytes
    last = round_up(each, last_grain_bytes(shape, function[1]))
    return [(loops + (rest > 0), loops * chunk + min(max(rest - head * last, 0), last)) for head in range(len(shape.heads))]


@dataclasses.dataclass
class Expected:
    moved: dict       # (channel, head, part) -> (steps, bytes)
    switched: dict    # channel -> (bytes to the switch, bytes from it)
    connections: dict # (channel, peer, direction) -> (steps, messages, bytes)


def expected_of(shape, rank, function, parts, call_bytes, type_bytes):
    """`parts`: the bytes of each channel."""
    moved, switched, connections = {}, {}, {}
    own = shape.head_of(rank)
    for channel, part_bytes in parts.items():
        heads = heads_of_part(shape, function, part_bytes, call_bytes, type_bytes)
        for head, counts in enumerate(heads):
            moved.update({(channel, head, part): counts for part in PARTS[function[0]]
                          if part in ("scatter", "gather") or head == own})
        crossed = collections.Counter()
        for (of_channel, _, part), (_, count) in moved.items():
            if of_channel == channel:
                crossed[part in TO_SWITCH] += count
        switched[channel] = (crossed[True], crossed[False])
        if function[1] == "NVLS_TREE" and own is not None:
            steps, count = heads[own]
            connections.update({(channel, peer, direction): (steps, steps, count) for peer in shape.neighbours[rank, channel % 2]
                                for direction in ("send", "receive")})
    return Expected(moved, switched, connections)
