# SPDX-License-Identifier: Apache-2.0
"""Sums over sockets, and derived bytes, in a report against the bytes that the test double sent."""


def problems_of(report, sent_bytes, over_sockets, source):
    """Of a job that was recorded from start to end. `source`: the byte source of RDMA traffic."""
    total = report["total"]
    tcp, derived = total["tcp"], total["derived_tx_payload_bytes"] or 0
    problems = []
    computed = sent_bytes if source == "derived" and not over_sockets else 0
    if derived != computed:
        problems.append(f"derived bytes of queue pairs: {derived}, not {computed}; the double sent {sent_bytes}")
    if over_sockets != bool(tcp and report["sockets"]):
        problems.append(f"{len(report['sockets'])} sockets, {tcp} of TCP")
    for name in ("tiers", "node_pairs"):
        sums = report[name].values() if name == "tiers" else report[name]
        if sum(each["derived_tx_payload_bytes"] or 0 for each in sums) != derived:
            problems.append(f"{name} do not add up to the {derived} derived bytes")
        for figure in ("sockets", "tx_payload_bytes", "rx_payload_bytes", "retransmitted_bytes"):
            if sum((each["tcp"] or {}).get(figure) or 0 for each in sums) != ((tcp or {}).get(figure) or 0):
                problems.append(f"{name} do not add up to tcp {figure} {tcp}")
    if tcp:
        problems += problems_of_sockets(report, sent_bytes)
    for what, compared in report["identity"]["headers"].items():
        problems += [f"wire bytes that follow from {what} messages: {each}" for each in (compared or {}).get("differences", ())]
    return problems


def problems_of_headers(report, fewest):
    """Problems of wire bytes that are both measured and computed; 0: `problems_of` looks at differences, and nothing more is asked for."""
    if fewest == 0:
        return []
    data = report["identity"]["headers"]["data"]
    if data is None or data["queue_pairs_equal"] < fewest or data["queue_pairs_not_computed"] != 0:
        return [f"wire bytes that follow from messages, of {fewest} queue pairs at least: {data}"]
    return []


def problems_of_ways(report, over_sockets, qps_a_connection, nics):
    """Problems of the paths that data took, on hosts with RDMA devices: sockets or RDMA, queue pairs of a connection, NICs."""
    kinds = {finding["kind"] for finding in report["findings"]}
    problems = [] if over_sockets == ("tcp_with_rdma" in kinds) else [f"findings {sorted(kinds)}, over sockets: {over_sockets}"]
    if over_sockets:
        return problems
    counts = {len(part["qpns"]) for kind in ("collectives", "p2p") for operation in report[kind] for part in operation["parts"]
              if part["direction"] == "send" and part["transport"] == "NET/IB"}
    if counts != {qps_a_connection}:
        problems.append(f"connections have {counts} queue pairs, not {qps_a_connection}")
    data = [qp for qp in report["qps"] if qp["role"] == "data"]
    idle = [(qp["host"], qp["qpn"]) for qp in data if not (qp["tx_payload_bytes"] or qp["derived_tx_payload_bytes"])]
    if qps_a_connection > 1 and idle:
        problems.append(f"queue pairs that carried nothing: {idle[:10]}")
    devices = {(qp["host"], qp["device"]) for qp in data}
    if len(devices) != nics * len(report["hosts"]) or (nics > 1 and "unused_nic" in kinds):
        problems.append(f"data of {nics} NICs a host went through {sorted(devices)}; findings {sorted(kinds)}")
    return problems


def problems_of_sockets(report, sent_bytes):
    tcp, sockets = report["total"]["tcp"], report["sockets"]
    problems = [f"socket {socket['local']} > {socket['remote']}: {socket}" for socket in sockets
                if not (socket["role"] and socket["remote_host"] and socket["netdev"]
                        and socket["retransmitted_bytes"] is not None and socket["tier"] in ("leaf", "spine"))]
    if sum(socket["tx_payload_bytes"] for socket in sockets) != tcp["tx_payload_bytes"] or len(sockets) != tcp["sockets"]:
        problems.append(f"{len(sockets)} sockets do not add up to {tcp}")
    known_bytes = (tcp["tx_payload_bytes"] or 0) + (tcp["derived_tx_payload_bytes"] or 0)
    headers_bytes = report["control"]["socket_headers"]["payload_bytes"] or 0
    # A socket that closed between two samples lacks its last bytes.
    is_cut_short = any(socket["cut_short"] for socket in sockets)
    if known_bytes > sent_bytes + headers_bytes or (known_bytes < sent_bytes + headers_bytes and not is_cut_short):
        problems.append(f"{known_bytes} bytes of TCP, the double sent {sent_bytes}, and message headers are {headers_bytes}")
    for tier, sums in report["tiers"].items():
        if sums["tcp"] and sums["tcp"]["tx_payload_bytes"] and sums["tx_payload_bytes"] == 0:
            problems.append(f"tier {tier} says 0, and sockets carried {sums['tcp']}")
    return problems
