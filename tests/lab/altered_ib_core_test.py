#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An RDMA core that is not the kernel's own, with one more field in front of struct ib_qp. Without BTF it is refused by name, and queue pairs
come from libibverbs: their ends and posted bytes are right. Where its BTF describes it, every byte is right.

altered_ib_core_test.py [--kernel SERIES]"""

import ipaddress
import os

import altered_stack as stack
import lab_harness as harness

NODES = 2
OPTIONS = ("--pcap", "--env", "RECORD_OPTIONS=--posts=on")


def boot(out, kernel, modules):
    """Returns the results of both nodes."""
    harness.run_job(out, kernel, NODES, "altered_ib_core.py", "--modules", modules, *OPTIONS)
    results = [harness.load(out, f"node{node}", "result.json") for node in range(NODES)]
    for result in results:
        assert "O" in result["taint"], f"the kernel's own ib_core is loaded: {result}"
        assert result["record"] == 0 and result["counters"] == 0, result
    assert harness.load(out, "node0", "work-requests.json")["verified"], "the altered stack itself does not work"
    return results


def states(out, node):
    """doctor's JSON, and {source: (state, checks that stand against it)}."""
    found = harness.load(out, f"node{node}", "doctor.json")
    return found, {source["name"]: (source["state"], source["because"]) for source in found["sources"]}


def roce_bytes(out, node):
    sent = harness.frames(os.path.join(out, "fabric", f"tap{node}.pcap"))
    return sum(length for source, _, _, length, frame in sent if source == harness.mac(node) and harness.is_roce(frame))


def tap_bytes(out, node):
    link, = (link for link in harness.load(out, "fabric", "links.json") if link["name"] == f"tap{node}")
    return link["a_to_b_bytes"] if link["a"] == f"node{node}" else link["b_to_a_bytes"]


def check_doctor_warns(out, node):
    found, sources = states(out, node)
    assert found["exit_status"] == 0, found["exit_status"]
    modules, = (check for check in found["checks"] if check["name"] == "kernel modules")
    assert modules["state"] == "limited" and "ib_core (built outside the kernel tree" in modules["found"], modules
    assert modules["effect"] and modules["fix"], modules
    for source, state in (("qp", "limited"), ("rxe_wire", "missing"), ("ports", "limited")):
        assert sources[source][0] == state and "kernel modules" in sources[source][1], (source, sources)
    assert {sources[name][0] for name in ("verbs", "posts", "counters")} == {"ok"}, sources


def check_record_refuses(said):
    name = "is out-of-tree (built outside the kernel tree"
    for source, module in (("qp", "ib_core"), ("rxe_wire", "rdma_rxe"), ("ports", "carrier changes only: ib_core")):
        line, = (line for line in said.splitlines() if line.startswith(f"collwire: {source}: "))
        assert line.startswith(f"collwire: {source}: {module} {name}"), line
        assert "has no BTF" in line and "Fix: " in line, line


def check_from_libibverbs(out):
    """Every queue pair of a program is there with both ends and what it posted. The ports' counters are what the wire carried."""
    report = harness.collwire_report(out)
    assert report["loss"]["records"] == 0 and not report["unmatched_posts"], report
    states_of = {(source["host"], source["name"]): source["state"] for source in report["sources"]}
    for node in range(NODES):
        host = f"node{node}"
        wanted = {"qp": "refused", "verbs": "on", "rxe_wire": "refused", "ports": "degraded", "posts": "on", "counters": "on"}
        assert {name: states_of[(host, name)] for name in wanted} == wanted, states_of
        port, = (port for port in report["ports"] if port["host"] == host)
        assert 0 < port["explained_tx_bytes"] <= port["tx_wire_bytes"], port
        roce, tap = roce_bytes(out, node), tap_bytes(out, node)
        print(f"{host}: port {port['tx_wire_bytes']} B, of which RoCE {roce} B, on the link {tap} B from the boot on")
        assert 0 < roce <= port["tx_wire_bytes"] <= tap, (port, roce, tap)
    check_programs(out, report)
    assert any("source qp is refused on node0, node1: ib_core" in warning for warning in report["warnings"]), report["warnings"]
    harness.compare(out, posted=harness.REPORT)


def check_programs(out, report):
    program = harness.load(out, "node0", "work-requests.json")
    pairs = {(qp["host"], qp["pid"], qp["qpn"]): qp for qp in report["qps"]}
    for truth in program["qps"]:
        qp = pairs[("node0", program["pid"], truth["qpn"])]
        assert qp["remote_qpn"] == truth["remote_qpn"] and qp["pairing"] == "paired" and qp["peer"]["host"] == "node1", qp
        assert ipaddress.IPv6Address(qp["remote_gid"]) == ipaddress.IPv6Address(truth["remote_gid"]), (qp, truth)
        assert ipaddress.IPv6Address(qp["local_gid"]) == ipaddress.IPv6Address(truth["local_gid"]), (qp, truth)
        asked = sum(of["bytes"] for name, of in truth["posted"]["classes"].items() if name not in ("read", "atomic"))
        assert qp["posted_tx_payload_bytes"] == asked > 0, (qp, asked)
        assert not qp["preexisting"] and qp["destroyed_ns"] is not None, qp
    print(f"{len(program['qps'])} queue pairs from libibverbs: both ends and posted bytes as the program says")


def check_right(out, results):
    for node, result in enumerate(results):
        found, sources = states(out, node)
        assert found["exit_status"] == 0 and {sources[name][0] for name in ("qp", "rxe_wire", "ports", "posts")} == {"ok"}, sources
        modules, = (check for check in found["checks"] if check["name"] == "kernel modules")
        assert modules["found"].startswith("out-of-tree, with BTF: ib_core"), modules
        assert "out-of-tree" not in result["said"], result["said"]
    report = harness.collwire_report(out)
    assert report["loss"]["records"] == 0 and not report["unmatched_posts"], report
    check_programs(out, report)
    harness.compare(out, wire=harness.REPORT)


def check_run(arguments, out):
    stack.need_tools()
    built = stack.build(arguments.kernel, os.path.join(out, "build"))
    without = os.path.join(out, "without-btf")
    boot_results = boot(without, arguments.kernel, stack.undescribed(built, os.path.join(out, "modules-without-btf")))
    for node, result in enumerate(boot_results):
        assert result["doctor"] == 0, result
        check_doctor_warns(without, node)
        check_record_refuses(result["said"])
    check_from_libibverbs(without)
    kernel_btf = os.path.join(without, "node0", "vmlinux.btf")
    if not boot_results[0]["module_btf"]:
        print(f"kernel {arguments.kernel} takes no BTF of modules: there is no described variant")
        return
    with_btf = os.path.join(out, "with-btf")
    results = boot(with_btf, arguments.kernel, stack.described(built, kernel_btf, os.path.join(out, "modules-with-btf")))
    check_right(with_btf, results)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
