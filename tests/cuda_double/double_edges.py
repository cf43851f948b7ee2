# SPDX-License-Identifier: Apache-2.0
"""The double's log by edges: what one rank sent to another on a channel. Their transports against the lines that NCCL prints when it connects, their bytes
against the algebra of the operations in the job's log."""

import collections
import re

from double_job import lines_of, output_of

# Bytes in the FIFO of 120 bytes of data. A post of LL128 fills whole warps' 2048 bytes.
WIRE_OF_120 = {"SIMPLE": 120, "LL": 240, "LL128": 128}
LL128_SLICE_BYTES = 2048
VIA = re.compile(r"Channel (\d+)(?:/(\d+))? : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[(send|receive)\])? via (\w+)")
RING_COLLECTIVES = {"AllGather", "ReduceScatter", "AllReduce"}
CHAINS = {"Broadcast", "Reduce"}

Edge = collections.namedtuple("Edge", "operation algorithm protocol channel source destination index transport")


def edges_of(directory, ranks):
    """({Edge: bytes}, {Edge: posts}) of all ranks. What is sent must have been received."""
    sides = {"send": (collections.Counter(), collections.Counter()), "receive": (collections.Counter(), collections.Counter())}
    for rank in range(ranks):
        for kernel in lines_of(f"{directory}/truth.{rank}"):
            for connection in kernel["connections"]:
                operation, *rest = kernel["works"][connection["work"]]["function"].split("_")
                pair = (rank, connection["peer"]) if connection["direction"] == "send" else (connection["peer"], rank)
                edge = Edge(operation, rest[0] if rest else "", connection["protocol"], connection["channel"], *pair, connection["connection"],
                            connection["transport"])
                sides[connection["direction"]][0][edge] += connection["bytes"]
                sides[connection["direction"]][1][edge] += connection["posts"]
    assert sides["send"] == sides["receive"], f"sent {sides['send']}, received {sides['receive']}"
    return sides["send"]


def transports_printed(directory, ranks):
    """{(channel, index or None, source, destination): {transports}}: NCCL prints no index with SHM."""
    printed = collections.defaultdict(set)
    for rank in range(ranks):
        for channel, index, source, destination, _, transport in VIA.findall(output_of(directory, rank)):
            printed[int(channel), int(index) if index else None, int(source), int(destination)].add(transport.lower())
    return printed


def check_transports(directory, edges, ranks, ranks_per_node, inside):
    """Each edge has the transport that NCCL printed for it: `inside` on a node, net between nodes."""
    printed = transports_printed(directory, ranks)
    for edge in edges:
        named = printed.get((edge.channel, edge.index, edge.source, edge.destination)) or \
            printed.get((edge.channel, None, edge.source, edge.destination), set())
        assert named == {edge.transport}, f"{edge}: NCCL printed {named}"
        is_inside = edge.source // ranks_per_node == edge.destination // ranks_per_node
        assert edge.transport == (inside if is_inside else "net"), f"{edge}: not {inside} on a node of {ranks_per_node}"


def calls_of(directory, rank):
    return [line for line in lines_of(f"{directory}/job.{rank}")
            if line["event"] in ("call", "replay") and line["result"] == 0 and (line["graph"] is None or line["event"] == "replay")]


def transfers_of(directory, ranks):
    """{(source, destination): data bytes} of sends and of what NCCL makes of them."""
    asked = collections.Counter()
    for rank in range(ranks):
        for call in calls_of(directory, rank):
            others = [peer for peer in range(ranks) if peer != rank]
            if call["op"] == "Send" and call["peer"] != rank:
                asked[rank, call["peer"]] += call["bytes"]
            elif call["op"] == "AlltoAll" or (call["op"] == "Scatter" and call["root"] == rank):
                asked.update({(rank, peer): call["bytes"] for peer in others})
            elif call["op"] == "Gather" and call["root"] != rank:
                asked[rank, call["root"]] += call["bytes"]
    return asked


def has_data(wire_bytes, posts, protocol, data_bytes):
    """Whether so many bytes in the FIFO are those of the data. Exact, but for LL128: there the end of each post is filled up."""
    least = data_bytes * WIRE_OF_120[protocol] / 120
    if protocol == "LL128":
        return least <= wire_bytes < least + posts * LL128_SLICE_BYTES and wire_bytes % LL128_SLICE_BYTES == 0
    return wire_bytes == least


def has_shape(operation, algorithm, pairs, ranks, root):
    """Whether these (source, destination) are all the edges of a ring, of a ring cut at its root, or of a tree."""
    if algorithm == "TREE":
        return len(pairs) == 2 * (ranks - 1) and all((end, begin) in pairs for begin, end in pairs) and len(set(sum(pairs, ()))) == ranks
    after = dict((end, begin) for begin, end in pairs) if operation == "Reduce" else dict(pairs)
    at, passed = root if operation in CHAINS else 0, []
    while at is not None and at not in passed:
        passed.append(at)
        at = after.get(at)
    return len(pairs) == len(after) and len(passed) == ranks and at == (None if operation in CHAINS else 0)


def check_collective(operation, ranks, edges, posts, data_bytes, root):
    """`edges` of one collective. Data bytes of the calls: of a rank's part for AllGather and ReduceScatter."""
    algorithm, protocol = next((edge.algorithm, edge.protocol) for edge in edges)
    assert all((edge.algorithm, edge.protocol, edge.index) == (algorithm, protocol, 0) for edge in edges), f"{operation}: {edges}"
    by_channel = collections.defaultdict(dict)
    for edge, count in edges.items():
        by_channel[edge.channel][edge.source, edge.destination] = (count, posts[edge])
    total_bytes, total_posts = 0, 0
    for channel, pairs in by_channel.items():
        used = {pair: counts for pair, counts in pairs.items() if counts[0] != 0}
        wrong = f"{operation} {algorithm} {protocol} channel {channel}: {pairs}"
        assert not used or has_shape(operation, algorithm, list(used), ranks, root), wrong
        if protocol != "LL128": # the ends that are filled up differ
            assert len({count for count, _ in used.values()}) <= 1, wrong
        total_bytes += sum(count for count, _ in used.values())
        total_posts += sum(of_edge for _, of_edge in used.values())
    times = {"AllGather": ranks * (ranks - 1), "ReduceScatter": ranks * (ranks - 1), "AllReduce": 2 * (ranks - 1), "Broadcast": ranks - 1,
             "Reduce": ranks - 1}[operation]
    assert has_data(total_bytes, total_posts, protocol, times * data_bytes), \
        f"{operation} {algorithm} {protocol}: {total_bytes} bytes in {total_posts} posts for {times} x {data_bytes} of data"


def check_algebra(directory, edges, posts, ranks):
    """Roots are the same in all calls of an operation, and sizes can be divided by ranks and channels without a rest."""
    asked, roots = collections.Counter(), {}
    for call in calls_of(directory, 0):
        if call["op"] in RING_COLLECTIVES | CHAINS:
            asked[call["op"]] += call["bytes"]
            roots[call["op"]] = call["root"]
    done = {edge.operation for edge in edges}
    assert done - {"SendRecv"} == set(asked), f"asked for {set(asked)}, did {done}"
    for operation, data_bytes in asked.items():
        own = {edge: count for edge, count in edges.items() if edge.operation == operation}
        check_collective(operation, ranks, own, posts, data_bytes, roots[operation])
    transfers = transfers_of(directory, ranks)
    moved = collections.Counter()
    for edge, count in edges.items():
        if edge.operation == "SendRecv":
            assert edge.index == 1, edge
            moved[edge.source, edge.destination] += count * 120 // WIRE_OF_120[edge.protocol]
    assert +moved == +transfers, f"transfers: asked for {transfers}, moved {moved}"
    return len(asked) + bool(transfers)
