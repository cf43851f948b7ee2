// SPDX-License-Identifier: Apache-2.0
// The topology file: what is read, what is refused and how that is said.
#include <gtest/gtest.h>

#include <string>

#include "correlate/topology/topology.h"

namespace collwire::topology {
namespace {

constexpr const char *LAB = R"({
  "collwire_topology": 1,
  "switches": [
    {"id": "leaf0", "tier": "leaf", "pod": "pod0", "uplinks": ["spine0"]},
    {"id": "leaf1", "tier": "leaf", "pod": "pod0", "uplinks": ["spine0"]},
    {"id": "spine0", "tier": "spine"}
  ],
  "ports": [
    {"host": "node0", "device": "rxe0", "port": 1, "ip": "10.0.0.1", "mac": "52:54:00:00:00:01", "switch": "leaf0", "switch_port": "tap0", "rail": 0},
    {"host": "node1", "device": "rxe0", "port": 1, "ip": "10.0.0.2", "gid": null, "switch": "leaf0", "switch_port": "tap1", "rail": 0},
    {"host": "node2", "device": "rxe0", "port": 1, "ip": "10.0.0.3", "switch": "leaf1", "switch_port": "tap2", "rail": 0}
  ],
  "source": "lab", "generated": "2026-01-02T03:04:05Z"
})";

std::string with_ports(const std::string &ports) {
    return R"({"collwire_topology": 1, "switches": [{"id": "l", "tier": "leaf"}, {"id": "m", "tier": "leaf"}], "ports": [)" +
           ports + "]}";
}

std::string with_switches(const std::string &switches) {
    return R"({"collwire_topology": 1, "switches": [)" + switches + R"(], "ports": []})";
}

std::string refusal(const std::string &json, const Limits &limits = {}) {
    auto parsed = parse_topology(json, limits);
    if (parsed)
        return "(accepted)";
    EXPECT_EQ(parsed.failure().kind, ErrorKind::BadInput);
    EXPECT_EQ(parsed.failure().message.find('\n'), std::string::npos) << "one line";
    return parsed.failure().message;
}

#define EXPECT_REFUSED(json, words)                                                                \
    EXPECT_NE(refusal(json).find(words), std::string::npos) << refusal(json)

TEST(TopologyFile, ReadsEveryFieldOfAPort) {
    auto topology = parse_topology(LAB);
    ASSERT_TRUE(topology) << topology.failure().message;
    EXPECT_EQ(topology->source(), "lab");
    EXPECT_EQ(topology->generated(), "2026-01-02T03:04:05Z");
    EXPECT_EQ(topology->port_count(), 3U);
    EXPECT_EQ(topology->switch_count(), 3U);
    EXPECT_EQ(topology->problems().warnings(), 0U);
    const auto ref = topology->find_local("node0", "rxe0", 1);
    ASSERT_TRUE(ref);
    const Port port = topology->port(*ref);
    EXPECT_EQ(port.host, "node0");
    EXPECT_EQ(port.device, "rxe0");
    EXPECT_EQ(port.port, 1U);
    EXPECT_EQ(port.switch_id, "leaf0");
    EXPECT_EQ(port.switch_port, "tap0");
    EXPECT_EQ(port.pod, "pod0");
    EXPECT_EQ(port.rail, 0U);
    EXPECT_EQ(port.mac, 0x525400000001U);
    ASSERT_TRUE(port.ip);
    EXPECT_EQ(format_ip(*port.ip), "10.0.0.1");
    EXPECT_FALSE(port.guid);
    EXPECT_FALSE(port.lid);
    EXPECT_EQ(topology->switch_at(0).uplinks.size(), 1U);
    EXPECT_EQ(topology->switch_at(0).uplinks[0], 2U);
}

TEST(TopologyFile, AcceptsByteOrderMarkAndCarriageReturns) {
    std::string text = LAB;
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
        text.insert(at, 1, '\r');
    EXPECT_TRUE(parse_topology("\xef\xbb\xbf" + text));
}

TEST(TopologyFile, SyntaxErrorsNameThePlace) {
    EXPECT_REFUSED("", "empty");
    EXPECT_REFUSED("\xef\xbb\xbf \n", "empty");
    EXPECT_REFUSED("{\n  \"collwire_topology\": 1,\n  oops", "line 3, column 3 (byte offset 30)");
    EXPECT_REFUSED("\xef\xbb\xbf{oops", "byte offset 4");
    EXPECT_REFUSED("# Topology file: generated", "byte offset 0");
    for (std::size_t cut : {1U, 20U, 100U, 500U})
        EXPECT_REFUSED(std::string(LAB).substr(0, cut), "ends too early");
    EXPECT_REFUSED(std::string("{\"collwire_topology\": 1, \"x\": \"\xff\"}"), "byte offset 31");
    EXPECT_REFUSED(std::string(100000, '['), "Fix:");
    EXPECT_REFUSED(std::string(100, '[') + std::string(100, ']'), "nested deeper");
}

TEST(TopologyFile, NestingNamesThePlace) {
    const std::string deep = "{\"a\\\"[\": \"[[\",\n \"b\": " + std::string(70, '[');
    EXPECT_REFUSED(deep, "nested deeper than 64 levels at line 2, column 70 (byte offset 84)");
    EXPECT_REFUSED(" \n", "the file is empty (2 bytes");
}

TEST(TopologyFile, HeaderIsChecked) {
    EXPECT_REFUSED("[]", "not an object");
    EXPECT_REFUSED("{}", "collwire topology import");
    EXPECT_REFUSED(R"({"collwire_topology": 2})",
                   "collwire_topology at line 1, column 2 (byte offset 1): version 2 is newer");
    EXPECT_REFUSED("\xef\xbb\xbf{\"a\": {\"collwire_topology\": 1},\n \"source\": "
                   "\"collwire_topology\", \"collwire_topology\": 99}",
                   "at line 2, column 33 (byte offset 67): version 99 is newer");
    EXPECT_REFUSED(R"({"\u0063ollwire_topology": 2})", "collwire_topology: version 2 is newer");
    EXPECT_REFUSED(R"({"collwire_topology": "1"})", "not a version number");
    EXPECT_REFUSED(R"({"collwire_topology": -1})", "not a version number");
    EXPECT_REFUSED(R"({"collwire_topology": 1, "switches": []})", "\"ports\" is missing");
    EXPECT_REFUSED(R"({"collwire_topology": 1, "switches": {}, "ports": []})",
                   "switches: is object, not a list");
    EXPECT_REFUSED(R"({"collwire_topology": 1, "switches": [], "ports": [], "source": 3})",
                   "source: is number");
}

TEST(TopologyFile, UnknownKeysWarn) {
    const auto checked = check_topology(
        R"({"collwire_topology": 1, "colour": 1, "switches": [{"id": "l", "tier": "leaf", "vendor": "x"}], "ports": [{"host": "a", "switch": "l", "cable": 3}]})");
    ASSERT_TRUE(checked.topology);
    EXPECT_EQ(checked.problems.warnings(), 3U);
    EXPECT_NE(checked.problems.kept()[1].message.find("switches[0]: key \"vendor\""),
              std::string::npos);
    EXPECT_NE(checked.problems.kept()[2].message.find("ports[0]: key \"cable\""),
              std::string::npos);
    EXPECT_EQ(checked.topology->problems().warnings(), 3U);
}

TEST(TopologyFile, WrongTypesNameThePath) {
    EXPECT_REFUSED(with_ports("7"), "ports[0]: is number, not an object");
    EXPECT_REFUSED(with_ports(R"({"host": 7, "switch": "l"})"),
                   "ports[0].host: is number, not a string");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "port": -1})"),
                   "ports[0].port: is -1");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "port": 1.5})"),
                   "ports[0].port: is 1.5");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "port": 70000})"), "up to 65535");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "port": 18446744073709551615})"),
                   "up to 65535");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "rail": true})"),
                   "ports[0].rail: is boolean");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "ip": "10.0.0"})"),
                   "ports[0].ip: \"10.0.0\"");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "mac": "52:54"})"), "ports[0].mac");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "guid": "0xzz"})"), "ports[0].guid");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "lid": 65535})"), "ports[0].lid");
    EXPECT_REFUSED(with_ports(R"({"host": "a\u001b[31m", "switch": "l"})"), "Fix: ");
    EXPECT_REFUSED(with_ports(R"({"host": "a\u0007", "switch": "l"})"),
                   R"("a\x07" holds a control character)");
    EXPECT_REFUSED(with_ports(R"({"host": ")" + std::string(256, 'a') + R"(", "switch": "l"})"),
                   "256 bytes");
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "leaf", "uplinks": "s"})"),
                   "switches[0].uplinks");
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "leaf", "uplinks": [3]})"),
                   "switches[0].uplinks[0]");
}

TEST(TopologyFile, SwitchesMustMakeSense) {
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "root"})"),
                   "switches[0].tier: \"root\" is not a tier");
    EXPECT_REFUSED(with_switches(R"({"id": "a"})"), "switches[0].tier");
    EXPECT_REFUSED(with_switches(R"({"tier": "leaf"})"), "switches[0].id: is missing");
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "leaf"}, {"id": "a", "tier": "leaf"})"),
                   "switches[1].id: \"a\" is also switches[0]");
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "leaf", "uplinks": ["b"]})"),
                   "switches[0].uplinks[0]: no switch \"b\"");
    EXPECT_REFUSED(with_switches(R"({"id": "a", "tier": "leaf", "uplinks": ["a"]})"),
                   "its own uplink");
    EXPECT_REFUSED(
        with_switches(
            R"({"id": "a", "tier": "leaf", "uplinks": ["b"]}, {"id": "b", "tier": "leaf"})"),
        "is not above");
    EXPECT_REFUSED(
        with_switches(
            R"({"id": "a", "tier": "leaf", "uplinks": ["b"]}, {"id": "b", "tier": "spine", "uplinks": ["a"]})"),
        "a cycle");
}

TEST(TopologyFile, PortsNeedAnIdentityAndASwitch) {
    EXPECT_REFUSED(with_ports(R"({"device": "mlx5_0", "switch": "l"})"), "nothing says which port");
    EXPECT_REFUSED(with_ports(R"({"host": "a"})"), "has no \"switch\"");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "x"})"),
                   "ports[0].switch: no switch \"x\"");
    EXPECT_REFUSED(with_ports(R"({"lid": 0, "guid": "0x0", "switch": "l"})"),
                   "nothing says which port");
}

TEST(TopologyFile, ContradictionsAreRefusedRepetitionsWarn) {
    const std::string first =
        R"({"host": "a", "device": "d", "port": 1, "ip": "10.0.0.1", "switch": "l"})";
    EXPECT_REFUSED(with_ports(first + R"(,{"host": "a", "device": "d", "port": 1, "switch": "m"})"),
                   "ports[1]: host \"a\" device \"d\" port 1 is also that of ports[0]");
    EXPECT_REFUSED(with_ports(first + R"(,{"host": "b", "ip": "10.0.0.1", "switch": "l"})"),
                   "IP 10.0.0.1");
    EXPECT_REFUSED(
        with_ports(
            R"({"guid": "0x1", "switch": "l"},{"guid": "0000:0000:0000:0001", "switch": "m"})"),
        "GUID 0x0000000000000001");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "mac": "02:00:00:00:00:01", "switch": "l"},
                                 {"host": "b", "mac": "02-00-00-00-00-01", "switch": "l"})"),
                   "MAC 02:00:00:00:00:01");
    EXPECT_REFUSED(with_ports(R"({"host": "a", "switch": "l", "switch": "m"})"),
                   "ports[0]: key \"switch\" occurs twice");
    EXPECT_REFUSED(R"({"collwire_topology": 1, "ports": [], "switches": [], "ports": []})",
                   "top level: key \"ports\" occurs twice");
    const auto repeated = check_topology(with_ports(first + "," + first));
    ASSERT_TRUE(repeated.topology);
    EXPECT_EQ(repeated.topology->port_count(), 1U);
    EXPECT_EQ(repeated.problems.kept()[0].message,
              "ports[1]: repeats ports[0] (host \"a\", device \"d\"); it counts once");
}

TEST(TopologyFile, EveryProblemIsCountedButOnlySomeAreKept) {
    std::string ports = "1";
    for (int i = 0; i < 99; i++)
        ports += ",1";
    const auto checked = check_topology(with_ports(ports));
    EXPECT_FALSE(checked.topology);
    EXPECT_EQ(checked.problems.errors(), 100U);
    EXPECT_EQ(checked.problems.kept().size(), 50U);
    EXPECT_REFUSED(with_ports(ports), "(99 more: see `collwire topology check`)");
}

TEST(TopologyFile, WriterIsReadBack) {
    Document document;
    document.source = "a \"test\"";
    document.generated = "today";
    document.switches.push_back({"sp{0}", SwitchTier::Spine, "", {}});
    document.switches.push_back({"le[af]", SwitchTier::Leaf, "p}d", {"sp{0}"}});
    PortEntry port;
    port.host = "h[1]";
    port.device = "mlx5_0";
    port.port = 2;
    port.guid = "0x0000000000000abc";
    port.lid = 7;
    port.switch_id = "le[af]";
    port.switch_port = "Eth[1]";
    port.rail = 3;
    document.ports.push_back(port);
    auto topology = parse_topology(to_json(document));
    ASSERT_TRUE(topology) << topology.failure().message << to_json(document);
    const auto ref = topology->find_local("h[1]", "mlx5_0", 2);
    ASSERT_TRUE(ref);
    const Port read = topology->port(*ref);
    EXPECT_EQ(read.switch_id, "le[af]");
    EXPECT_EQ(read.switch_port, "Eth[1]");
    EXPECT_EQ(read.pod, "p}d");
    EXPECT_EQ(read.guid, 0xabcU);
    EXPECT_EQ(read.lid, 7U);
    EXPECT_EQ(read.rail, 3U);
    EXPECT_EQ(topology->source(), "a \"test\"");
}

} // namespace
} // namespace collwire::topology
