// SPDX-License-Identifier: Apache-2.0
// Entries that stand for many.
#include <gtest/gtest.h>

#include <string>

#include "correlate/topology/topology.h"

namespace collwire::topology {
namespace {

constexpr const char *RAILS = R"({
  "collwire_topology": 1,
  "switches": [
    {"id": "pod{p}-leaf{i}", "tier": "leaf", "pod": "pod{p}", "uplinks": ["pod{p}-spine{s}"],
     "vars": {"p": "0-3", "i": "0-7", "s": "0-3"}},
    {"id": "pod{p}-spine{s}", "tier": "spine", "uplinks": ["core[{c}]"], "vars": {"p": "0-3", "s": "0-3", "c": "1,3-4"}},
    {"id": "core[[[1-4]]", "tier": "superspine"}
  ],
  "ports": [
    {"host": "gpu-[001-128]", "device": "mlx5_{i}", "port": 1, "ip": "10.{i}.{p}.{h}", "switch": "pod{p}-leaf{i}",
     "switch_port": "swp{h}", "rail": "{i}",
     "vars": {"i": "0-7", "p": {"of": "n", "every": 32}, "h": {"of": "n", "within": 32, "start": 1}}},
    {"host": "storage[1,8-9]", "device": "mlx5_[0-1]", "switch": "pod0-leaf{i}", "switch_port": "st{n:02}-{i}"}
  ]
})";

std::string refusal(const std::string &port, const Limits &limits = {}) {
    auto parsed = parse_topology(
        R"({"collwire_topology": 1, "switches": [{"id": "l", "tier": "leaf"}], "ports": [)" + port +
            "]}",
        limits);
    return parsed ? "(accepted)" : parsed.failure().message;
}

#define EXPECT_REFUSED(port, words)                                                                \
    EXPECT_NE(refusal(port).find(words), std::string::npos) << refusal(port)

TEST(TopologyPattern, ExpandsRailOptimisedPods) {
    auto topology = parse_topology(RAILS);
    ASSERT_TRUE(topology) << topology.failure().message;
    EXPECT_EQ(topology->switch_count(), 4U * 8 + 4 * 4 + 4);
    EXPECT_EQ(topology->port_count(), 128U * 8 + 3 * 2);
    const auto ref = topology->find_local("gpu-033", "mlx5_5", 1);
    ASSERT_TRUE(ref);
    const Port port = topology->port(*ref);
    EXPECT_EQ(port.switch_id, "pod1-leaf5");
    EXPECT_EQ(port.switch_port, "swp1");
    EXPECT_EQ(port.rail, 5U);
    EXPECT_EQ(format_ip(*port.ip), "10.5.1.1");
    EXPECT_FALSE(topology->find_local("gpu-33", "mlx5_5", 1));
    EXPECT_FALSE(topology->find_local("gpu-129", "mlx5_0", 1));
    const auto storage = topology->find_local("storage8", "mlx5_1", 7);
    ASSERT_TRUE(storage);
    EXPECT_EQ(topology->port(*storage).switch_port, "st08-1");
    EXPECT_EQ(topology->port(*storage).switch_id, "pod0-leaf1");
}

TEST(TopologyPattern, ClassifiesRailsAndPods) {
    auto topology = parse_topology(RAILS);
    ASSERT_TRUE(topology) << topology.failure().message;
    const auto at = [&](const char *host, const char *device) {
        return *topology->find_local(host, device, 1);
    };
    EXPECT_EQ(topology->classify(at("gpu-001", "mlx5_3"), at("gpu-032", "mlx5_3")), Tier::Leaf);
    EXPECT_EQ(topology->classify(at("gpu-001", "mlx5_3"), at("gpu-032", "mlx5_4")), Tier::Spine);
    EXPECT_EQ(topology->classify(at("gpu-032", "mlx5_3"), at("gpu-033", "mlx5_3")),
              Tier::Superspine);
    EXPECT_EQ(topology->classify(at("gpu-032", "mlx5_3"), at("gpu-032", "mlx5_4")), Tier::Self);
    EXPECT_EQ(
        topology->classify(at("gpu-032", "mlx5_3"), at("gpu-032", "mlx5_4"), SameHost::ByFabric),
        Tier::Spine);
}

TEST(TopologyPattern, SwitchUplinksUseTheirOwnRanges) {
    auto topology = parse_topology(RAILS);
    ASSERT_TRUE(topology);
    for (std::uint32_t i = 0; i < topology->switch_count(); i++) {
        const Switch one = topology->switch_at(i);
        const std::size_t wanted = one.tier == SwitchTier::Leaf    ? 4
                                   : one.tier == SwitchTier::Spine ? 3
                                                                   : 0;
        EXPECT_EQ(one.uplinks.size(), wanted) << one.id;
    }
    EXPECT_EQ(topology->switch_at(48).id, "core[1]");
}

TEST(TopologyPattern, MistakesAreNamed) {
    EXPECT_REFUSED(R"({"host": "a[1-2", "switch": "l"})",
                   "ports[0].host: \"a[1-2\": '[' without ']'");
    EXPECT_REFUSED(R"({"host": "a[2-1]", "switch": "l"})", "\"2-1\" is not a list of numbers");
    EXPECT_REFUSED(R"({"host": "a[]", "switch": "l"})", "\"\" is not a list of numbers");
    EXPECT_REFUSED(R"({"host": "a[1,]", "switch": "l"})", "not a list");
    EXPECT_REFUSED(R"({"host": "a[1-99999999999]", "switch": "l"})", "not a list");
    EXPECT_REFUSED(R"({"host": "a[1][2]", "switch": "l"})", "variable \"n\" is set twice");
    EXPECT_REFUSED(R"({"host": "a{n", "switch": "l"})", "'{' without '}'");
    EXPECT_REFUSED(R"({"host": "a{n}", "switch": "l"})",
                   "ports[0].host: \"a{n}\": variable \"n\" is not set");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l{n:3}"})", "\"3\" is not a width");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l{n:0999999}"})", "is not a width");
    EXPECT_REFUSED(R"({"host": "a", "switch": "l", "vars": {"i": "0-3"}})", "\"i\" is not used");
    EXPECT_REFUSED(R"({"host": "a", "switch": "l", "vars": {"i": 3}})", "ports[0].vars.i");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l", "vars": {"p": {"of": "n"}}})",
                   "is not a rule");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l", "vars": {"p": {"of": "n", "every": 0}}})",
                   "vars.p");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l", "vars": {"p": {"of": "x", "every": 2}}})",
                   "\"of\" names \"x\"");
    EXPECT_REFUSED(
        R"({"host": "a[1-2]", "switch": "l", "vars": {"p": {"of": "n", "every": 2, "within": 2}}})",
        "is not a rule");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l", "vars": {"1": "1-2"}})",
                   "is not a variable name");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "l", "ip": "10.0.0.1"})",
                   "IP 10.0.0.1 is also that of ports[0]");
    EXPECT_REFUSED(R"({"host": "a[255-256]", "switch": "l", "ip": "10.0.0.{n}"})",
                   "\"10.0.0.256\"");
    EXPECT_REFUSED(R"({"host": "a[1-2]", "switch": "m{n}"})", "no switch \"m1\"");
}

TEST(TopologyPattern, ExpansionIsBounded) {
    EXPECT_REFUSED(R"({"host": "a[0-2147483647]", "switch": "l"})",
                   "stand for more than 1000000 ports");
    EXPECT_REFUSED(
        R"({"host": "a[0-2147483647]-{a}-{b}-{c}", "switch": "l", "vars": {"a": "0-2147483647", "b": "0-2147483647", "c": "0-2147483647"}})",
        "stand for more than 1000000 ports");
    Limits small;
    small.ports = 10;
    EXPECT_NE(
        refusal(R"({"host": "a[1-6]", "switch": "l"}, {"host": "b[1-6]", "switch": "l"})", small)
            .find("ports[1]: more than 10 ports in all"),
        std::string::npos);
    Limits little_text;
    little_text.text_bytes = 20;
    EXPECT_NE(refusal(R"({"host": "a[1-16]", "switch": "l"})", little_text)
                  .find("more than 20 bytes of names"),
              std::string::npos);
    const auto switches = parse_topology(
        R"({"collwire_topology": 1, "switches": [{"id": "a[1-100]", "tier": "leaf", "uplinks": ["b{x}"], "vars": {"x": "1-100000"}}], "ports": []})");
    ASSERT_FALSE(switches);
    EXPECT_NE(switches.failure().message.find("more than 4000000 uplinks"), std::string::npos)
        << switches.failure().message;
}

TEST(TopologyPattern, UplinksOfOneEntryCountTogether) {
    std::string uplinks = R"("x{n}")";
    for (int i = 0; i < 1999; i++)
        uplinks += R"(, "x{n}")";
    const auto refused = parse_topology(
        R"({"collwire_topology": 1, "switches": [{"id": "a", "tier": "leaf", "uplinks": [)" +
        uplinks + R"(], "vars": {"n": "1-4000"}}], "ports": []})");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.failure().message.find("stand for more than 4000000 uplinks"),
              std::string::npos)
        << refused.failure().message;
}

TEST(TopologyPattern, FieldsAreBoundedBeforeTheyAreWrittenOut) {
    std::string pieces;
    for (int i = 0; i < 65; i++)
        pieces += "{n}";
    EXPECT_REFUSED(R"({"host": "h[1-2]", "switch": "l", "switch_port": ")" + pieces + "\"}",
                   "more than 64 variables");
    EXPECT_REFUSED(R"({"host": "h[1-2]", "switch": "l", "switch_port": ")" +
                       std::string(5000, 'x') + "\"}",
                   "has 5000 bytes, at most 4096 are allowed");
}

// Every spine reaches the same superspines, by another set of uplinks each: few switches are above
// a leaf, and many ways lead to them.
TEST(TopologyPattern, UplinkPathsAreCountedDuringTheWalk) {
    std::string switches = R"({"id": "p[0-49]", "tier": "superspine"})";
    for (int i = 0; i < 50; i++)
        switches += R"(,{"id": "s)" + std::to_string(i) +
                    R"(", "tier": "spine", "uplinks": ["p{k}"], "vars": {"k": ")" +
                    (i == 0 ? std::string("1-49")
                            : "0-" + std::to_string(i - 1) +
                                  (i == 49 ? "" : "," + std::to_string(i + 1) + "-49")) +
                    "\"}}";
    for (int i = 0; i < 40; i++)
        switches += R"(,{"id": "l)" + std::to_string(i) +
                    R"(", "tier": "leaf", "uplinks": ["s{k}"], "vars": {"k": "0-)" +
                    std::to_string(i + 9) + "\"}}";
    Limits limits;
    limits.paths = 20'000;
    const auto refused = parse_topology(
        R"({"collwire_topology": 1, "switches": [)" + switches + R"(], "ports": []})", limits);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.failure().message.find("more than 20000 uplink paths"), std::string::npos)
        << refused.failure().message;
}

// 200 leaves, each below 2,000 switches by a way of its own.
TEST(TopologyPattern, ADenseGraphIsBounded) {
    Limits limits;
    limits.paths = 100'000;
    std::string switches;
    for (int i = 0; i < 200; i++)
        switches += R"({"id": "l)" + std::to_string(i) +
                    R"(", "tier": "leaf", "uplinks": ["s", "t)" + std::to_string(i) +
                    R"("]},{"id": "t)" + std::to_string(i) + R"(", "tier": "spine"},)";
    switches +=
        R"({"id": "s", "tier": "spine", "uplinks": ["c{x}"], "vars": {"x": "1-2000"}}, {"id": "c[1-2000]", "tier": "core"})";
    const auto refused = parse_topology(
        R"({"collwire_topology": 1, "switches": [)" + switches + R"(], "ports": []})", limits);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.failure().message.find("more than 100000 uplink paths"), std::string::npos)
        << refused.failure().message;
}

} // namespace
} // namespace collwire::topology
