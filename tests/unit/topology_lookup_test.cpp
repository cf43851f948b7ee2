// SPDX-License-Identifier: Apache-2.0
// Finding a port and the tier between two of them.
#include <gtest/gtest.h>

#include <string>

#include "correlate/topology/topology.h"

namespace collwire::topology {
namespace {

Topology parse(const std::string &switches, const std::string &ports) {
    auto parsed = parse_topology(R"({"collwire_topology": 1, "switches": [)" + switches +
                                 R"(], "ports": [)" + ports + "]}");
    EXPECT_TRUE(parsed) << parsed.failure().message;
    return *std::move(parsed);
}

const std::string LEAF = R"({"id": "l", "tier": "leaf"})";

std::string device_of(const Topology &topology, const std::optional<PortRef> &ref) {
    return ref ? std::string(topology.port(*ref).device) : "(none)";
}

TEST(TopologyLookup, HostNamesWithAndWithoutDomain) {
    const Topology topology = parse(LEAF, R"({"host": "a", "device": "d0", "switch": "l"},
        {"host": "b.rack1.example", "device": "d1", "switch": "l"}, {"host": "c.x", "device": "d2", "switch": "l"},
        {"host": "c.y", "device": "d3", "switch": "l"}, {"host": "10.0.0.1", "device": "d4", "switch": "l"})");
    EXPECT_EQ(device_of(topology, topology.find_local("a", "d0", 1)), "d0");
    EXPECT_EQ(device_of(topology, topology.find_local("a.example", "d0", 1)), "d0");
    EXPECT_EQ(device_of(topology, topology.find_local("b", "d1", 1)), "d1");
    EXPECT_EQ(device_of(topology, topology.find_local("b.rack1.example", "d1", 1)), "d1");
    EXPECT_FALSE(topology.find_local("b.rack2.example", "d1", 1))
        << "two different domains are two hosts";
    EXPECT_FALSE(topology.find_local("c", "d2", 1)) << "c.x or c.y";
    EXPECT_EQ(device_of(topology, topology.find_local("c.y", "d3", 1)), "d3");
    EXPECT_EQ(device_of(topology, topology.find_local("10.0.0.1", "d4", 1)), "d4");
    EXPECT_FALSE(topology.find_local("10", "d4", 1));
    EXPECT_FALSE(topology.find_local("10.0.0.2", "d4", 1));
    EXPECT_FALSE(topology.find_local("", "d0", 1));
    EXPECT_FALSE(topology.find_local("d0", "d0", 1)) << "a name, but of no host";
}

TEST(TopologyLookup, PortThenDeviceThenHost) {
    const Topology topology =
        parse(LEAF + R"(,{"id": "m", "tier": "leaf"},{"id": "o", "tier": "leaf"})",
              R"({"host": "a", "device": "d", "port": 2, "switch": "l"},
        {"host": "a", "device": "d", "switch": "m"}, {"host": "a", "switch": "o"},
        {"host": "b", "netdev": "eth1", "switch": "l"}, {"host": "b", "guid": "0x1", "switch": "m"})");
    const auto on = [&](std::optional<PortRef> ref) {
        return ref ? std::string(topology.port(*ref).switch_id) : "(none)";
    };
    EXPECT_EQ(on(topology.find_local("a", "d", 2)), "l");
    EXPECT_EQ(on(topology.find_local("a", "d", 1)), "m");
    EXPECT_EQ(on(topology.find_local("a", "e", 1)), "o");
    EXPECT_EQ(on(topology.find_netdev("b", "eth1")), "l");
    EXPECT_EQ(on(topology.find_netdev("b", "eth2")), "(none)");
    EXPECT_EQ(on(topology.find_local("b", "d", 1)), "(none)")
        << "a port with a GUID is not the whole host";
}

TEST(TopologyLookup, RemoteEndpoints) {
    const Topology topology =
        parse(LEAF, R"({"host": "a", "device": "v4", "ip": "10.0.0.1", "switch": "l"},
        {"host": "a", "device": "v6", "ip": "2001:db8::1", "switch": "l"},
        {"host": "a", "device": "guid", "guid": "0x506b4b03009c0be2", "lid": 4, "switch": "l"},
        {"host": "a", "device": "gid", "gid": "fec0::1", "lid": 4, "switch": "l"},
        {"host": "a", "device": "mac", "mac": "52:54:00:12:34:56", "switch": "l"},
        {"host": "a", "device": "lmc", "lid": 34, "lmc": 2, "switch": "l"},
        {"host": "a", "device": "bond0", "mac": "52:54:00:00:00:09", "switch": "l"},
        {"host": "a", "device": "bond1", "mac": "52:54:00:00:00:09", "switch": "l"})");
    const auto by_gid = [&](const char *gid) {
        return device_of(topology, topology.find_remote({.gid = parse_gid(gid)}));
    };
    EXPECT_EQ(by_gid("::ffff:10.0.0.1"), "v4");
    EXPECT_EQ(by_gid("0000:0000:0000:0000:0000:ffff:0a00:0001"), "v4");
    EXPECT_EQ(by_gid("2001:db8::1"), "v6");
    EXPECT_EQ(by_gid("fe80::506b:4b03:9c:be2"), "guid");
    EXPECT_EQ(by_gid("fec0::1"), "gid");
    EXPECT_EQ(by_gid("fe80::5054:ff:fe12:3456"), "mac") << "a RoCE default GID carries the MAC";
    EXPECT_EQ(by_gid("fe80::5054:ff:fe00:9"), "(none)") << "both ports of the bond";
    EXPECT_EQ(by_gid("fe80::1"), "(none)");
    EXPECT_FALSE(topology.find_remote({}));
    EXPECT_FALSE(topology.find_remote({.gid = Address{}}));

    EXPECT_FALSE(topology.find_remote({.lid = std::uint16_t{4}})) << "two subnets use it";
    EXPECT_EQ(device_of(topology, topology.find_remote({.lid = std::uint16_t{4},
                                                        .subnet_prefix = 0xfec0000000000000})),
              "gid");
    EXPECT_EQ(device_of(topology, topology.find_remote({.lid = std::uint16_t{4},
                                                        .subnet_prefix = 0xfe80000000000000})),
              "guid");
    for (std::uint16_t lid = 32; lid < 36; lid++)
        EXPECT_EQ(device_of(topology, topology.find_remote({.lid = lid})), "lmc") << lid;
    EXPECT_FALSE(topology.find_remote({.lid = std::uint16_t{36}}));
    EXPECT_FALSE(topology.find_remote({.lid = std::uint16_t{0}}));
    EXPECT_EQ(device_of(topology, topology.find_remote({.ip = parse_ip("10.0.0.1")})), "v4");
    EXPECT_EQ(device_of(topology, topology.find_remote({.mac = parse_mac("525400123456")})), "mac");
    EXPECT_EQ(device_of(topology, topology.find_remote(
                                      {.gid = parse_gid("fe80::1"), .ip = parse_ip("10.0.0.1")})),
              "v4")
        << "an unknown GID leaves the weaker addresses";
}

TEST(TopologyLookup, AddressSpellings) {
    EXPECT_EQ(parse_guid("0x1"), 1U);
    EXPECT_EQ(parse_guid("506b:4b03:009c:0be2"), 0x506b4b03009c0be2U);
    EXPECT_EQ(parse_guid("506B4B03009C0BE2"), 0x506b4b03009c0be2U);
    for (const char *bad : {"", "0x", "1", "0x12345678123456789", "506b:4b03:009c:0be",
                            "506b:4b03:009c:0be2:", "506b4b03:009c0be2"})
        EXPECT_FALSE(parse_guid(bad)) << bad;
    EXPECT_EQ(parse_mac("52:54:00:12:34:56"), 0x525400123456U);
    EXPECT_EQ(parse_mac("52-54-00-12-34-56"), 0x525400123456U);
    for (const char *bad :
         {"", "52:54:00:12:34", "52:54:00:12:34:56:78", "52:54-00:12:34:56", "52:54:00:12:34:5g"})
        EXPECT_FALSE(parse_mac(bad)) << bad;
    EXPECT_FALSE(parse_ip("10.0.0.256"));
    EXPECT_FALSE(parse_ip(std::string("10.0.0.1\0x", 10)));
    EXPECT_EQ(format_mac(0x525400123456), "52:54:00:12:34:56");
    EXPECT_EQ(format_guid(0xabc), "0x0000000000000abc");
}

// p0: leaves a b, spines s t; p1: leaf c, spine u; both below x. d hangs off t. e stands alone. f
// is an island.
Topology two_pods() {
    return parse(
        R"({"id": "a", "tier": "leaf", "uplinks": ["s", "t"]}, {"id": "b", "tier": "leaf", "uplinks": ["s"]},
        {"id": "c", "tier": "leaf", "uplinks": ["u"]}, {"id": "d", "tier": "leaf", "uplinks": ["t"]},
        {"id": "e", "tier": "leaf"}, {"id": "f", "tier": "leaf", "uplinks": ["g"]}, {"id": "g", "tier": "spine"},
        {"id": "s", "tier": "spine", "uplinks": ["x"]}, {"id": "t", "tier": "spine", "uplinks": ["x"]},
        {"id": "u", "tier": "spine", "uplinks": ["x"]}, {"id": "x", "tier": "core"})",
        R"({"host": "a1", "switch": "a"}, {"host": "a2", "switch": "a"}, {"host": "b1", "switch": "b"},
        {"host": "c1", "switch": "c"}, {"host": "d1", "switch": "d"}, {"host": "e1", "switch": "e"},
        {"host": "f1", "switch": "f"}, {"host": "s1", "switch": "s"}, {"host": "s2", "switch": "s"},
        {"host": "x1", "switch": "x"})");
}

TEST(TopologyClassify, ByTheUplinkGraph) {
    const Topology topology = two_pods();
    const auto tier = [&](const char *a, const char *b) {
        const auto from = *topology.find_local(a, "", 0);
        const auto to = *topology.find_local(b, "", 0);
        const Tier forth = topology.classify(from, to);
        EXPECT_EQ(forth, topology.classify(to, from)) << a << ' ' << b;
        EXPECT_EQ(forth, topology.classify(from, to)) << "from the cache";
        return std::string(tier_name(forth));
    };
    EXPECT_EQ(tier("a1", "a1"), "self");
    EXPECT_EQ(tier("a1", "a2"), "leaf");
    EXPECT_EQ(tier("a1", "b1"), "spine");
    EXPECT_EQ(tier("a1", "d1"), "spine");
    EXPECT_EQ(tier("b1", "d1"), "superspine") << "b and d share no spine";
    EXPECT_EQ(tier("a1", "c1"), "superspine");
    EXPECT_EQ(tier("a1", "e1"), "unknown");
    EXPECT_EQ(tier("a1", "f1"), "unknown") << "an island";
    EXPECT_EQ(tier("s1", "s2"), "spine") << "both cabled to a spine";
    EXPECT_EQ(tier("a1", "s1"), "spine");
    EXPECT_EQ(tier("d1", "s1"), "superspine") << "d does not reach s but over x";
    EXPECT_EQ(tier("b1", "x1"), "superspine");
}

TEST(TopologyClassify, AnEntryOfAWholeHostOrDeviceIsNotOnePort) {
    const Topology topology =
        parse(LEAF, R"({"host": "a", "switch": "l"}, {"host": "b", "device": "d", "switch": "l"},
                       {"host": "c", "device": "d", "port": 1, "switch": "l"})");
    const auto whole = *topology.find_local("a", "mlx5_0", 1);
    ASSERT_EQ(whole, *topology.find_local("a", "mlx5_1", 1));
    EXPECT_EQ(topology.classify(whole, whole), Tier::Self);
    EXPECT_EQ(topology.classify(whole, whole, SameHost::ByFabric), Tier::Leaf);
    const auto device = *topology.find_local("b", "d", 1);
    ASSERT_EQ(device, *topology.find_local("b", "d", 2));
    EXPECT_EQ(topology.classify(device, device, SameHost::ByFabric), Tier::Leaf);
    const auto port = *topology.find_local("c", "d", 1);
    EXPECT_EQ(topology.classify(port, port, SameHost::ByFabric), Tier::Self);
}

TEST(TopologyClassify, PodsOnlyWhereUplinksAreMissing) {
    const Topology topology = parse(
        R"({"id": "a", "tier": "leaf", "pod": "p"}, {"id": "b", "tier": "leaf", "pod": "p"},
           {"id": "c", "tier": "leaf", "pod": "q"}, {"id": "d", "tier": "leaf"},
           {"id": "e", "tier": "leaf", "pod": "r", "uplinks": ["s"]}, {"id": "f", "tier": "leaf", "pod": "r", "uplinks": ["t"]},
           {"id": "g", "tier": "leaf", "pod": "u", "uplinks": ["v"]}, {"id": "h", "tier": "leaf", "pod": "w", "uplinks": ["y"]},
           {"id": "i", "tier": "leaf", "pod": "r"},
           {"id": "s", "tier": "spine"}, {"id": "t", "tier": "spine"}, {"id": "v", "tier": "core"}, {"id": "y", "tier": "core"})",
        R"({"host": "a", "switch": "a"}, {"host": "b", "switch": "b"}, {"host": "c", "switch": "c"},
           {"host": "d", "switch": "d"}, {"host": "e", "switch": "e"}, {"host": "f", "switch": "f"},
           {"host": "g", "switch": "g"}, {"host": "h", "switch": "h"}, {"host": "i", "switch": "i"})");
    const auto tier = [&](const char *a, const char *b) {
        return topology.classify(*topology.find_local(a, "", 0), *topology.find_local(b, "", 0));
    };
    EXPECT_EQ(tier("a", "b"), Tier::Spine);
    EXPECT_EQ(tier("a", "c"), Tier::Superspine);
    EXPECT_EQ(tier("a", "d"), Tier::Unknown);
    EXPECT_EQ(tier("e", "f"), Tier::Unknown)
        << "one pod, but the file says that its planes do not meet";
    EXPECT_EQ(tier("e", "i"), Tier::Spine) << "the uplinks of one are missing";
    EXPECT_EQ(tier("i", "e"), Tier::Spine);
    EXPECT_EQ(tier("e", "a"), Tier::Superspine);
    EXPECT_EQ(tier("g", "h"), Tier::Unknown) << "both reach the top and do not meet";
}

TEST(TopologyClassify, AHundredThousandPorts) {
    const Topology topology = parse(
        R"({"id": "p{p}-l{l}", "tier": "leaf", "uplinks": ["p{p}-s{s}"], "vars": {"p": "0-63", "l": "0-49", "s": "0-15"}},
           {"id": "p{p}-s{s}", "tier": "spine", "uplinks": ["c{s}-{c}"], "vars": {"p": "0-63", "s": "0-15", "c": "0-31"}},
           {"id": "c{s}-{c}", "tier": "superspine", "vars": {"s": "0-15", "c": "0-31"}})",
        R"({"host": "h{p}-{l}-[0-31]", "device": "mlx5_0", "port": 1, "ip": "10.{p}.{l}.{n}", "switch": "p{p}-l{l}",
            "vars": {"p": "0-63", "l": "0-49"}})");
    ASSERT_EQ(topology.port_count(), 102'400U);
    const auto ports = static_cast<std::uint32_t>(topology.port_count());
    std::size_t counts[5] = {};
    std::uint32_t a = 1;
    constexpr std::size_t CALLS = 100'000;
    for (std::size_t i = 0; i < CALLS; i++) {
        a = a * 1664525 + 1013904223;
        const PortRef from{a % ports};
        a = a * 1664525 + 1013904223;
        const PortRef to{a % ports};
        counts[static_cast<std::size_t>(topology.classify(from, to))]++;
    }
    EXPECT_EQ(counts[static_cast<std::size_t>(Tier::Unknown)], 0U);
    EXPECT_GT(counts[static_cast<std::size_t>(Tier::Leaf)], 0U);
    EXPECT_GT(counts[static_cast<std::size_t>(Tier::Spine)], CALLS / 100);
    EXPECT_GT(counts[static_cast<std::size_t>(Tier::Superspine)], CALLS / 2);
}

// Quadratic work on a list of this length would not end within the time a test has.
TEST(TopologyFile, ALongListTakesLinearTime) {
    std::string file =
        R"({"collwire_topology": 1, "switches": [{"id": "l", "tier": "leaf"}], "ports": [)";
    constexpr int COUNT = 100'000;
    for (int i = 0; i < COUNT; i++)
        file += (i > 0 ? "," : "") + std::string(R"({"guid": ")") +
                format_guid(static_cast<std::uint64_t>(i) + 1) + R"(", "switch": "l"})";
    const auto topology = parse_topology(file + "]}");
    ASSERT_TRUE(topology);
    EXPECT_EQ(topology->port_count(), static_cast<std::size_t>(COUNT));
    std::string nothing = R"({"lldp": [)";
    for (int i = 0; i < COUNT; i++)
        nothing += "{},";
    EXPECT_FALSE(parse_topology(nothing + "{}]}"));
}

} // namespace
} // namespace collwire::topology
