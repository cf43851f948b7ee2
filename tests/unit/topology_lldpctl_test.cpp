// SPDX-License-Identifier: Apache-2.0
// lldpctl's JSON in its two shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"

namespace collwire::topology {
namespace {

constexpr const char *BRIDGE =
    R"("capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": false}])";

std::string neighbour(const std::string &name, const std::string &mac, const std::string &port) {
    return R"({"via": "LLDP", "rid": "1", "chassis": {")" + name +
           R"(": {"id": {"type": "mac", "value": ")" + mac +
           R"("}, "mgmt-ip": ["10.0.0.1", "fe80::1"], )" + BRIDGE +
           R"(}}, "port": {"id": {"type": "ifname", "value": ")" + port +
           R"("}, "descr": "to a host"}})";
}

std::string json_of(const std::string &interfaces) {
    return R"({"lldp": {"interface": )" + interfaces + "}}";
}

std::string json0_interface(const std::string &interface, const std::string &chassis_name,
                            const std::string &mac, const std::string &port) {
    const std::string name =
        chassis_name.empty() ? "" : R"("name": [{"value": ")" + chassis_name + R"("}], )";
    return R"({"name": ")" + interface +
           R"(", "via": "LLDP", "chassis": [{"id": [{"type": "mac", "value": ")" + mac +
           R"("}], )" + name + BRIDGE + R"(}], "port": [{"id": [{"type": "ifname", "value": ")" +
           port + R"("}], "descr": [{"value": "to a host"}], "ttl": [{"value": "120"}]}]})";
}

std::string json0_of(const std::string &interfaces) {
    return R"({"lldp": [{"interface": [)" + interfaces + "]}]}";
}

Result<Imported>
try_import(const std::vector<std::pair<std::string, std::string>> &hosts_and_texts) {
    std::vector<ImportInput> inputs;
    inputs.reserve(hosts_and_texts.size());
    for (const auto &[host, text] : hosts_and_texts)
        inputs.push_back({host + ".json", text, host});
    return import_files(*find_importer("lldpctl"), inputs);
}

Imported import_one(const std::string &text) {
    auto imported = try_import({{"node0", text}});
    EXPECT_TRUE(imported) << imported.failure().message;
    return imported ? *std::move(imported) : Imported{};
}

bool warns(const Problems &problems, const std::string &words) {
    return std::any_of(problems.kept().begin(), problems.kept().end(), [&](const Problem &problem) {
        return problem.message.find(words) != std::string::npos;
    });
}

TEST(TopologyLldpctl, AllShapesGiveTheSameResult) {
    const std::string one = neighbour("tor1", "00:00:00:00:00:01", "swp1");
    const std::string two = neighbour("tor2", "00:00:00:00:00:02", "swp2");
    const std::string shapes[] = {
        json_of("[{\"eth1\": " + one + "}, {\"eth2\": " + two + "}]"),
        json_of("{\"eth1\": " + one + ", \"eth2\": " + two + "}"),
        json0_of(json0_interface("eth1", "tor1", "00:00:00:00:00:01", "swp1") + "," +
                 json0_interface("eth2", "tor2", "00:00:00:00:00:02", "swp2")),
        "\xef\xbb\xbf" + json_of("[{\"eth1\": " + one + "},\r\n {\"eth2\": " + two + "}]\r\n"),
    };
    for (const auto &shape : shapes) {
        EXPECT_EQ(detect_importer(shape), find_importer("lldpctl"));
        const Imported imported = import_one(shape);
        EXPECT_EQ(imported.problems.warnings(), 0U);
        ASSERT_EQ(imported.document.ports.size(), 2U) << shape;
        ASSERT_EQ(imported.document.switches.size(), 2U);
        EXPECT_EQ(imported.document.switches[0].id, "tor1");
        EXPECT_EQ(imported.document.switches[0].tier, SwitchTier::Leaf);
        const PortEntry &port = imported.document.ports[1];
        EXPECT_EQ(port.host, "node0");
        EXPECT_EQ(port.netdev, "eth2");
        EXPECT_EQ(port.switch_id, "tor2");
        EXPECT_EQ(port.switch_port, "swp2");
        auto topology = parse_topology(to_json(imported.document));
        ASSERT_TRUE(topology);
        EXPECT_TRUE(topology->find_netdev("node0", "eth1"));
    }
}

TEST(TopologyLldpctl, SingleInterfaceIsNotAList) {
    const Imported imported =
        import_one(json_of("{\"eth1\": " + neighbour("tor1", "00:00:00:00:00:01", "swp1") + "}"));
    ASSERT_EQ(imported.document.ports.size(), 1U);
    EXPECT_EQ(imported.document.ports[0].switch_id, "tor1");
}

TEST(TopologyLldpctl, ASwitchWithoutANameIsItsId) {
    const std::string chassis =
        std::string(R"({"id": {"type": "mac", "value": "00:00:00:00:00:07"}, )") + BRIDGE + "}";
    const Imported json = import_one(json_of(
        R"({"eth1": {"chassis": )" + chassis +
        R"(, "port": {"id": {"type": "mac", "value": "00:00:00:00:00:08"}, "descr": "swp9"}}})"));
    ASSERT_EQ(json.document.ports.size(), 1U);
    EXPECT_EQ(json.document.ports[0].switch_id, "00:00:00:00:00:07");
    EXPECT_EQ(json.document.ports[0].switch_port, "swp9")
        << "a port's address says less than its description";
    const Imported json0 =
        import_one(json0_of(json0_interface("eth1", "", "00:00:00:00:00:07", "swp1")));
    ASSERT_EQ(json0.document.ports.size(), 1U);
    EXPECT_EQ(json0.document.ports[0].switch_id, "00:00:00:00:00:07");
}

TEST(TopologyLldpctl, HostsMeetAtTheirSwitch) {
    const auto text = [](const char *port) {
        return json_of("{\"eth1\": " + neighbour("tor1", "00:00:00:00:00:01", port) + "}");
    };
    auto imported = try_import(
        {{"node0", text("swp1")},
         {"node1", text("swp2")},
         {"node2", json0_of(json0_interface("eth1", "tor1", "00:00:00:00:00:01", "swp3"))},
         {"node3", json_of("{\"eth1\": " + neighbour("tor1", "00:00:00:00:00:99", "swp1") + "}")}});
    ASSERT_TRUE(imported);
    ASSERT_EQ(imported->document.switches.size(), 2U) << "one name, but two chassis";
    EXPECT_EQ(imported->document.switches[0].id, "tor1 (00:00:00:00:00:01)");
    auto topology = parse_topology(to_json(imported->document));
    ASSERT_TRUE(topology) << topology.failure().message;
    const auto at = [&](const char *host) { return *topology->find_netdev(host, "eth1"); };
    EXPECT_EQ(topology->classify(at("node0"), at("node1")), Tier::Leaf);
    EXPECT_EQ(topology->classify(at("node0"), at("node2")), Tier::Leaf);
    EXPECT_EQ(topology->classify(at("node0"), at("node3")), Tier::Unknown)
        << "hosts do not see the spines";
}

TEST(TopologyLldpctl, NeighboursOtherThanSwitchesAreIgnored) {
    const std::string station =
        R"({"chassis": {"phone": {"id": {"type": "mac", "value": "1"}, "capability": [{"type": "Bridge", "enabled": false}, {"type": "Station", "enabled": true}]}}})";
    const Imported imported =
        import_one(json_of("[{\"eth0\": " + station +
                           R"(}, {"eth1": {"age": "1"}}, {"eth2": {"chassis": {"x": 3}}}, 7])"));
    EXPECT_TRUE(imported.document.ports.empty());
    EXPECT_TRUE(warns(imported.problems,
                      "interface \"eth0\": its neighbour \"phone\" is neither bridge nor router"));
    EXPECT_TRUE(warns(imported.problems, "interface \"eth1\": names no neighbour"));
    EXPECT_TRUE(warns(imported.problems, "no neighbour that is a switch"));
    EXPECT_TRUE(warns(import_one(R"({"lldp": {}})").problems, "no neighbour that is a switch"));
}

TEST(TopologyLldpctl, TheFirstOfSeveralNeighboursCounts) {
    const Imported imported =
        import_one(json_of("[{\"eth1\": " + neighbour("tor1", "1", "swp1") +
                           "},{\"eth1\": " + neighbour("tor2", "2", "swp1") + "}]"));
    ASSERT_EQ(imported.document.ports.size(), 1U);
    EXPECT_EQ(imported.document.ports[0].switch_id, "tor1");
    EXPECT_TRUE(warns(imported.problems, "several neighbours"));
}

TEST(TopologyLldpctl, BadFiles) {
    const auto refusal = [](const std::string &text) {
        auto imported = try_import({{"node0", text}});
        return imported ? "(accepted)" : imported.failure().message;
    };
    EXPECT_NE(refusal("").find("node0.json: the file is empty"), std::string::npos);
    EXPECT_NE(refusal("{\"lldp\": {").find("ends too early"), std::string::npos);
    EXPECT_NE(refusal("{}").find("no \"lldp\" member"), std::string::npos);
    EXPECT_NE(refusal("[]").find("no \"lldp\" member"), std::string::npos);
    const std::vector<ImportInput> no_host{{"x.json", R"({"lldp": {}})", ""}};
    const auto refused = import_files(*find_importer("lldpctl"), no_host);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().kind, ErrorKind::Usage);
    EXPECT_NE(refused.failure().message.find("--host"), std::string::npos);
    for (const char *odd :
         {R"({"lldp": 3})", R"({"lldp": {"interface": 3}})",
          R"({"lldp": {"interface": [null, [], {}]}})", R"({"lldp": {"interface": {"eth0": []}}})",
          R"({"lldp": {"interface": {"eth0": {"chassis": []}}}})",
          R"({"lldp": {"interface": {"eth0": {"chassis": {"": {"id": 3}}}}}})"})
        EXPECT_TRUE(import_one(odd).document.ports.empty()) << odd;
}

} // namespace
} // namespace collwire::topology
