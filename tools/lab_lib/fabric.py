# SPDX-License-Identifier: Apache-2.0
"""The leaf/spine fabric: bridges, uplinks and taps in the current network namespace, their counters, and the topology file."""

import json
import os
import subprocess

from .report import LabError

LEAVES = ("leaf0", "leaf1")
SPINE = "spine0"
# Long enough that packets for a slow emulated node wait and are not dropped.
TAP_QUEUE_FRAMES = 50000


def mac(node, nic):
    return f"52:54:00:00:{nic:02x}:{node + 1:02x}"


def address(node, nic):
    return f"10.0.{nic}.{node + 1}"


def leaf_of(node):
    return LEAVES[node // 2]


def tap_name(node, nic):
    return f"tap{node}" if nic == 0 else f"tap{node}_{nic}"


class Link:
    """One link: `device` is the host interface at the fabric's end. `inward`: what it receives travels from a to b."""

    def __init__(self, name, a, b, device, capture, ports):
        self.name, self.a, self.b = name, a, b
        self.device = device
        self.capture = capture  # name of the packet file
        self.ports = ports      # bridge ports that a silent cut disables


class Fabric:
    """Built in the network namespace of the caller, and removed with it."""

    def __init__(self, nodes, nics, mtu):
        self.nodes, self.nics, self.mtu = nodes, nics, mtu
        self.node_links = [Link(tap_name(n, i), f"node{n}", leaf_of(n), tap_name(n, i), f"{tap_name(n, i)}.pcap", [tap_name(n, i)])
                           for n in range(nodes) for i in range(nics)]
        self.uplinks = [Link(f"{leaf}-{SPINE}", leaf, SPINE, f"up{l}", f"up{l}.pcap", [f"up{l}", f"down{l}"])
                        for l, leaf in enumerate(LEAVES)]
        self.links = self.node_links + self.uplinks

    def build(self):
        _write_sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        _write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        for table in ("arptables", "iptables", "ip6tables"):
            _write_sysctl(f"net/bridge/bridge-nf-call-{table}", "0")
        port = "learning off flood off mcast_flood on bcast_flood on"
        lines = ["link set lo up"]
        for bridge in LEAVES + (SPINE,):
            lines.append(f"link add {bridge} mtu {self.mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0 mcast_querier 0")
            lines.append(f"link set {bridge} up")
        for l, leaf in enumerate(LEAVES):
            lines.append(f"link add up{l} mtu {self.mtu} type veth peer name down{l} mtu {self.mtu}")
            for device, bridge in ((f"up{l}", leaf), (f"down{l}", SPINE)):
                lines += [f"link set {device} master {bridge}", f"link set {device} type bridge_slave {port}", f"link set {device} up"]
        for link in self.node_links:
            lines += [f"tuntap add {link.device} mode tap", f"link set {link.device} mtu {self.mtu} txqueuelen {TAP_QUEUE_FRAMES}",
                      f"link set {link.device} master {link.b}", f"link set {link.device} type bridge_slave {port}",
                      f"link set {link.device} up"]
        _batch(["ip", "-batch", "-"], lines)
        _batch(["bridge", "-batch", "-"], self._static_forwarding())

    def _static_forwarding(self):
        """Static forwarding without learning or flooding: the path of a frame does not depend on earlier traffic."""
        lines = []
        for node in range(self.nodes):
            home = LEAVES.index(leaf_of(node))
            for nic in range(self.nics):
                entry = f"fdb add {mac(node, nic)} dev %s master static"
                lines += [entry % tap_name(node, nic), entry % f"down{home}", entry % f"up{1 - home}"]
        return lines

    def find(self, name):
        for link in self.links:
            if link.name == name:
                return link
        raise LabError(f"no link '{name}' in this fabric. Fix: use one of {', '.join(link.name for link in self.links)}")

    def cut(self, link, down):
        """A silent cut: the bridge ports stop forwarding, carriers stay up."""
        state = "disabled" if down else "forwarding"
        number = {"disabled": 0, "forwarding": 3}[state]
        _batch(["bridge", "-batch", "-"], [f"link set dev {port} state {number}" for port in link.ports])

    def counters(self):
        """[{name, a, b, a_to_b_bytes, ...}] for every link; bytes of frames without FCS."""
        done = subprocess.run(["ip", "-s", "-j", "link", "show"], capture_output=True, text=True, check=True)
        devices = {entry["ifname"]: entry["stats64"] for entry in json.loads(done.stdout)}
        rows = []
        for link in self.links:
            stats = devices[link.device]
            # A tap receives what its node sends; an uplink's leaf end sends what goes to the spine.
            forth, back = ("rx", "tx") if link in self.node_links else ("tx", "rx")
            rows.append({"name": link.name, "a": link.a, "b": link.b,
                         "a_to_b_bytes": stats[forth]["bytes"], "a_to_b_pkts": stats[forth]["packets"],
                         "b_to_a_bytes": stats[back]["bytes"], "b_to_a_pkts": stats[back]["packets"],
                         "a_to_b_dropped_pkts": stats[forth]["dropped"], "b_to_a_dropped_pkts": stats[back]["dropped"]})
        return rows

    def source_side(self, link, source_mac):
        """'a' or 'b': the end of the link that sends frames with this source address; None for an unknown address."""
        parts = source_mac.split(":")
        if parts[:4] != ["52", "54", "00", "00"] or int(parts[5], 16) > self.nodes:
            return None
        node = int(parts[5], 16) - 1
        if link in self.node_links:
            return "a" if tap_name(node, int(parts[4], 16)) == link.name else "b"
        return "a" if leaf_of(node) == link.a else "b"

    def topology(self):
        """The topology file of this fabric, see docs/lab.md."""
        switches = [{"id": leaf, "tier": "leaf", "pod": "pod0", "uplinks": [SPINE]} for leaf in LEAVES]
        switches.append({"id": SPINE, "tier": "spine"})
        ports = [{"host": f"node{n}", "device": f"rxe{i}", "port": 1, "ip": address(n, i), "switch": leaf_of(n),
                  "switch_port": tap_name(n, i), "rail": i} for n in range(self.nodes) for i in range(self.nics)]
        return {"collwire_topology": 1, "switches": switches, "ports": ports}


def _write_sysctl(name, value):
    path = f"/proc/sys/{name}"
    if os.path.exists(path):
        with open(path, "w", encoding="ascii") as out:
            out.write(value)


def _batch(command, lines):
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr.strip():
        raise LabError(f"the fabric could not be set up: {command[0]}: {' '.join(done.stderr.split())}. "
                       "Fix: the host's kernel needs bridge, veth and tun (modprobe bridge veth tun)")
