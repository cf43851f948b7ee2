#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queue pairs from libibverbs equal those from ib_core, field by field, in recordings of the same programs at the same time.

qp_sources_test.py [--kernel SERIES]"""

import lab_harness as harness

NODES = 2
# What libibverbs does not show, or at another moment. The report computes the rest from the same fields.
TIMES = {"created", "destroyed_ns", "generation_ns"}
NOT_SHOWN = {"udp_source_port"}  # that rdma_rxe chose
# Of queue pairs from before the recorder, RDMA netlink has numbers, states and owners.
OF_EXISTING = {"local_gid", "remote_gid", "gid_type", "path_mtu_bytes", "service_level", "traffic_class", "flow_label", "remote_lid"}
# Of the same, unless the other end is known with its address.
OF_PATH = {"pairing", "peer", "remote_host", "tier", "tx_wire_bytes", "rx_wire_bytes", "rx_payload_bytes", "rx_source", "bytes_rung", "assumed_ipv4",
           "tx_response_wire_bytes"}


def by_number(report):
    return {(qp["host"], qp["device"], qp["pid"], qp["qpn"]): qp for qp in report["qps"] if qp["owner"] == "process"}


def differences(one, other, left_out):
    found = {}
    for field in one.keys() | other.keys():
        mine, its = one.get(field), other.get(field)
        if field == "peer" and mine and its:
            mine, its = ({name: value for name, value in end.items() if name != "generation_ns"} for end in (mine, its))
        if field not in left_out and mine != its:
            found[field] = (mine, its)
    return found


def check_equal(kernel, verbs):
    assert kernel.keys() == verbs.keys(), (kernel.keys() - verbs.keys(), verbs.keys() - kernel.keys())
    n_existing = 0
    for key, qp in kernel.items():
        left_out = TIMES | NOT_SHOWN
        assert qp["preexisting"] == verbs[key]["preexisting"], (qp, verbs[key])
        if qp["preexisting"]:
            n_existing += 1
            left_out = left_out | OF_EXISTING | OF_PATH
        assert not differences(qp, verbs[key], left_out), (key, differences(qp, verbs[key], left_out))
        assert (qp["destroyed_ns"] is None) == (verbs[key]["destroyed_ns"] is None), (qp, verbs[key])
    print(f"{len(kernel)} queue pairs of programs equal in every field but {sorted(TIMES | NOT_SHOWN)}; {n_existing} of them existed before: "
          f"numbers, states, owners and posted bytes are equal")
    assert 0 < n_existing < len(kernel), (n_existing, len(kernel))


def check_compared(out):
    for node in range(NODES):
        result = harness.load(out, f"node{node}", "result.json")
        assert {name: of["status"] for name, of in result.items()} == {"kernel": 0, "verbs": 0, "both": 0}, result
    report = harness.collwire_report(out, capture="both", name="both.json")
    for source in report["sources"]:
        if source["name"] == "verbs":
            print(source["host"], source["state"], source["reason"])
            assert source["state"] == "on" and " 0 different, 0 in ib_core only, 0 in libibverbs only" in source["reason"], source
    return report


def check_run(arguments, out):
    harness.run_job(out, arguments.kernel, NODES, "qp_sources.py", "--pcap", *harness.missed_calls_options(arguments.kernel))
    reports = {name: harness.collwire_report(out, capture=name, name=f"{name}.json") for name in ("kernel", "verbs")}
    check_compared(out)
    check_equal(by_number(reports["kernel"]), by_number(reports["verbs"]))


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
