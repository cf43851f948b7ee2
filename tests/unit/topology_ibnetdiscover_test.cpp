// SPDX-License-Identifier: Apache-2.0
// ibnetdiscover's text: what is found, what is not believed, and which tiers follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"

namespace collwire::topology {
namespace {

std::string node(char kind, unsigned id) {
    return std::string("\"") + kind + "-00000000000000" + std::to_string(id) + "\"";
}

std::string system_guid(unsigned id) {
    return "sysimgguid=0x00000000000000" + std::to_string(id) + "\n";
}

// Ids of two digits, as the GUIDs above need them.
std::string switch_block(unsigned id, const std::string &description, const std::string &ports) {
    return "\nvendid=0x2c9\ndevid=0xd2f2\n" + system_guid(id) + "switchguid=0x1(1)\nSwitch\t40 " +
           node('S', id) + "\t\t# \"" + description + "\" enhanced port 0 lid 3 lmc 0\n" + ports;
}

std::string to_host(unsigned port, unsigned id, const std::string &description) {
    return "[" + std::to_string(port) + "]\t" + node('H', id) + "[1](00000000000000" +
           std::to_string(id) + ") \t\t# \"" + description + "\" lid 1" + std::to_string(id) +
           " 4xNDR\n";
}

std::string to_switch(unsigned port, unsigned id, unsigned peer_port,
                      const std::string &description) {
    return "[" + std::to_string(port) + "]\t" + node('S', id) + "[" + std::to_string(peer_port) +
           "]\t\t# \"" + description + "\" lid 3 4xNDR\n";
}

Imported import_text(const std::string &text) {
    const std::vector<ImportInput> inputs{{"fabric.txt", text, ""}};
    auto imported = import_files(*find_importer("ibnetdiscover"), inputs);
    EXPECT_TRUE(imported) << imported.failure().message;
    return imported ? *std::move(imported) : Imported{};
}

Topology read_back(const Document &document) {
    auto topology = parse_topology(to_json(document));
    EXPECT_TRUE(topology) << topology.failure().message;
    return *std::move(topology);
}

SwitchTier tier_of(const Document &document, const std::string &id) {
    for (const auto &one : document.switches) {
        if (one.id == id)
            return one.tier;
    }
    ADD_FAILURE() << "no switch " << id;
    return SwitchTier::Core;
}

bool warns(const Problems &problems, const std::string &words) {
    return std::any_of(problems.kept().begin(), problems.kept().end(), [&](const Problem &problem) {
        return problem.message.find(words) != std::string::npos;
    });
}

const std::string TWO_LEAVES =
    "#\n# Topology file: generated on Mon Jan  5 10:00:00 2026\n#\n" +
    switch_block(10, "MF0;leaf-a:MQM9700/U1",
                 to_host(1, 51, "gpu01 mlx5_0") + to_host(2, 52, "gpu02 mlx5_0") +
                     to_host(40, 60, "Mellanox Technologies Aggregation Node") +
                     to_switch(31, 12, 1, "MF0;spine-a:MQM9700/U1") +
                     to_switch(32, 12, 2, "MF0;spine-a:MQM9700/U1")) +
    switch_block(11, "MF0;leaf-b:MQM9700/U1",
                 to_host(1, 53, "gpu03 mlx5_0") + to_switch(31, 12, 3, "MF0;spine-a:MQM9700/U1")) +
    switch_block(12, "MF0;spine-a:MQM9700/U1",
                 to_switch(1, 10, 31, "MF0;leaf-a:MQM9700/U1") +
                     to_switch(2, 10, 32, "MF0;leaf-a:MQM9700/U1") +
                     to_switch(3, 11, 31, "MF0;leaf-b:MQM9700/U1")) +
    "\nvendid=0x2c9\n" + system_guid(51) + "caguid=0x51\nCa\t1 " + node('H', 51) +
    "\t\t# \"gpu01 mlx5_0\"\n[1](0000000000000051) \t" + node('S', 10) +
    "[1]\t\t# lid 151 lmc 2 \"MF0;leaf-a:MQM9700/U1\" lid 3 4xNDR\n";

TEST(TopologyIbnetdiscover, LeavesSpinesAndHosts) {
    const Imported imported = import_text(TWO_LEAVES);
    EXPECT_EQ(imported.counts.switches, 3U);
    EXPECT_EQ(imported.counts.switches_with_hosts, 2U);
    EXPECT_EQ(imported.counts.adapters, 4U);
    EXPECT_EQ(imported.counts.aggregation_nodes, 1U);
    EXPECT_EQ(imported.counts.host_links, 4U);
    EXPECT_EQ(imported.counts.switch_links, 3U);
    EXPECT_EQ(imported.problems.warnings(), 0U);
    EXPECT_EQ(imported.document.generated, "Mon Jan  5 10:00:00 2026");
    EXPECT_NE(imported.document.source.find("inferred"), std::string::npos);
    const Topology topology = read_back(imported.document);
    ASSERT_EQ(topology.port_count(), 3U) << "the aggregation node is no host";
    const auto gpu01 = topology.find_local("gpu01", "mlx5_0", 1);
    const auto gpu02 = topology.find_local("gpu02", "mlx5_0", 1);
    const auto gpu03 = topology.find_remote({.gid = parse_gid("fe80::53")});
    ASSERT_TRUE(gpu01 && gpu02 && gpu03);
    EXPECT_EQ(topology.port(*gpu01).switch_id, "leaf-a");
    EXPECT_EQ(topology.port(*gpu01).switch_port, "1");
    EXPECT_EQ(topology.find_remote({.lid = std::uint16_t{151}}), gpu01);
    EXPECT_EQ(topology.find_remote({.lid = std::uint16_t{150}}), gpu01) << "LMC 2: LIDs 148 to 151";
    EXPECT_EQ(topology.classify(*gpu01, *gpu02), Tier::Leaf);
    EXPECT_EQ(topology.classify(*gpu01, *gpu03), Tier::Spine);
}

TEST(TopologyIbnetdiscover, CarriageReturnsAndByteOrderMark) {
    std::string text = TWO_LEAVES;
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
        text.insert(at, 1, '\r');
    text.insert(0, "\xef\xbb\xbf");
    const Imported imported = import_text(text);
    EXPECT_EQ(imported.problems.warnings(), 0U);
    EXPECT_EQ(to_json(imported.document), to_json(import_text(TWO_LEAVES).document));
    EXPECT_EQ(detect_importer(text), find_importer("ibnetdiscover"));
}

TEST(TopologyIbnetdiscover, ASpineWithAHostStaysASpine) {
    const std::string text =
        switch_block(10, "a",
                     to_host(1, 51, "h1 mlx5_0") + to_host(2, 52, "h2 mlx5_0") +
                         to_switch(31, 12, 1, "s")) +
        switch_block(11, "b", to_host(1, 53, "h3 mlx5_0") + to_switch(31, 12, 2, "s")) +
        switch_block(12, "s",
                     to_switch(1, 10, 31, "a") + to_switch(2, 11, 31, "b") +
                         to_host(9, 54, "store mlx5_0"));
    const Imported imported = import_text(text);
    EXPECT_EQ(imported.counts.switches_with_hosts, 3U);
    EXPECT_EQ(tier_of(imported.document, "a"), SwitchTier::Leaf);
    EXPECT_EQ(tier_of(imported.document, "s"), SwitchTier::Spine);
    const Topology topology = read_back(imported.document);
    EXPECT_EQ(topology.classify(*topology.find_local("h1", "mlx5_0", 1),
                                *topology.find_local("h3", "mlx5_0", 1)),
              Tier::Spine);
    EXPECT_EQ(topology.classify(*topology.find_local("h1", "mlx5_0", 1),
                                *topology.find_local("store", "mlx5_0", 1)),
              Tier::Spine);
}

TEST(TopologyIbnetdiscover, ThreeTiers) {
    const std::string text =
        switch_block(10, "a", to_host(1, 51, "h1 mlx5_0") + to_switch(31, 12, 1, "s")) +
        switch_block(11, "b", to_host(1, 53, "h2 mlx5_0") + to_switch(31, 13, 1, "t")) +
        switch_block(12, "s", to_switch(1, 10, 31, "a") + to_switch(2, 14, 1, "x")) +
        switch_block(13, "t", to_switch(1, 11, 31, "b") + to_switch(2, 14, 2, "x")) +
        switch_block(14, "x", to_switch(1, 12, 2, "s") + to_switch(2, 13, 2, "t")) +
        switch_block(15, "unused", to_switch(1, 16, 1, "unused")) +
        switch_block(16, "unused", to_switch(1, 15, 1, "unused"));
    const Imported imported = import_text(text);
    EXPECT_EQ(tier_of(imported.document, "x"), SwitchTier::Superspine);
    EXPECT_EQ(imported.document.switches.size(), 5U);
    EXPECT_TRUE(warns(imported.problems, "2 switches lead to no host"));
    const Topology topology = read_back(imported.document);
    EXPECT_EQ(topology.classify(*topology.find_local("h1", "mlx5_0", 1),
                                *topology.find_local("h2", "mlx5_0", 1)),
              Tier::Superspine);
}

TEST(TopologyIbnetdiscover, CablesThatAreNotATreeWarn) {
    const std::string text =
        switch_block(10, "a",
                     to_host(1, 51, "h1 mlx5_0") + to_switch(30, 10, 31, "a") +
                         to_switch(31, 10, 30, "a") + to_switch(32, 11, 32, "b")) +
        switch_block(11, "b", to_host(1, 53, "h2 mlx5_0") + to_switch(32, 10, 32, "a"));
    const Imported imported = import_text(text);
    EXPECT_TRUE(warns(imported.problems, "1 cables lead back into the same switch"));
    EXPECT_TRUE(warns(imported.problems, "1 cables join switches of one tier"));
    EXPECT_EQ(imported.counts.switch_links, 2U);
    const Topology topology = read_back(imported.document);
    EXPECT_EQ(topology.classify(*topology.find_local("h1", "mlx5_0", 1),
                                *topology.find_local("h2", "mlx5_0", 1)),
              Tier::Unknown);
}

TEST(TopologyIbnetdiscover, DescriptionsWithoutAHostNameUseTheGuid) {
    std::string ports;
    unsigned id = 51;
    for (const char *description :
         {"localhost mlx5_0", "ubuntu mlx5_1", "MT4129 ConnectX7   Mellanox Technologies", "gpu01",
          "", "ubuntu.example HCA-1", "twin mlx5_0", "twin mlx5_0", "gpu01 HCA-3", "gpu02 ibp24s0",
          "a \"quoted\" one", "b\x01\xff mlx5_7"})
        ports += to_host(id - 50, id, description), id++;
    const Imported imported = import_text(switch_block(10, "a", ports));
    ASSERT_EQ(imported.document.ports.size(), 12U);
    for (const auto &port : imported.document.ports) {
        EXPECT_FALSE(port.guid.empty());
        const bool named =
            port.switch_port == "9" || port.switch_port == "10" || port.switch_port == "12";
        EXPECT_EQ(!port.host.empty(), named) << port.host << ' ' << port.switch_port;
    }
    EXPECT_EQ(imported.document.ports[8].host, "gpu01");
    EXPECT_EQ(imported.document.ports[8].device, "") << "HCA-3 is no device of Linux";
    EXPECT_EQ(imported.document.ports[9].device, "ibp24s0");
    EXPECT_EQ(imported.document.ports[11].host, "b??");
    EXPECT_TRUE(warns(imported.problems, "7 ports have a description that names no host"));
    EXPECT_TRUE(warns(imported.problems, "2 ports share their description"));
    EXPECT_EQ(read_back(imported.document).port_count(), 12U);
}

TEST(TopologyIbnetdiscover, SwitchesOfOneNameGetTheirGuid) {
    const Imported imported =
        import_text(switch_block(10, "Quantum Mellanox Technologies", to_host(1, 51, "x mlx5_0")) +
                    switch_block(11, "Quantum Mellanox Technologies", to_host(1, 52, "y mlx5_0")) +
                    switch_block(12, "MF0;dir:CS7500/L01/U1", to_host(1, 53, "z mlx5_0")) +
                    switch_block(13, "MF0;dir:CS7500/L02/U1", to_host(1, 54, "w mlx5_0")) +
                    switch_block(14, "", to_host(1, 55, "v mlx5_0")));
    std::vector<std::string> ids;
    for (const auto &one : imported.document.switches)
        ids.push_back(one.id);
    const std::vector<std::string> wanted{"Quantum Mellanox Technologies (0x0000000000000010)",
                                          "Quantum Mellanox Technologies (0x0000000000000011)",
                                          "MF0;dir:CS7500/L01/U1", "MF0;dir:CS7500/L02/U1",
                                          "0x0000000000000014"};
    EXPECT_EQ(ids, wanted);
}

TEST(TopologyIbnetdiscover, AdaptersOfASwitchAreNotHosts) {
    const Imported imported = import_text(
        switch_block(10, "a", to_host(1, 51, "h1 mlx5_0") + to_host(2, 52, "inside mlx5_0")) +
        "\n" + system_guid(10) + "Ca\t1 " + node('H', 52) + "\t\t# \"inside mlx5_0\"\n");
    EXPECT_EQ(imported.counts.aggregation_nodes, 1U);
    ASSERT_EQ(imported.document.ports.size(), 1U);
    EXPECT_EQ(imported.document.ports[0].host, "h1");
}

TEST(TopologyIbnetdiscover, GuidsArePrintedWithoutLeadingZeros) {
    const Imported imported = import_text(switch_block(
        10, "a",
        "[15]\t\"H-0001020304050602\"[1](1020304050603) \t\t# \"h mlx4_0\" lid 129 4xQDR\n"));
    ASSERT_EQ(imported.document.ports.size(), 1U);
    EXPECT_EQ(imported.document.ports[0].guid, "0x0001020304050603");
    EXPECT_EQ(imported.counts.host_links, 1U);
}

TEST(TopologyIbnetdiscover, CutOffAndDamagedFiles) {
    for (std::size_t length = 0; length < TWO_LEAVES.size(); length += 3) {
        const std::string cut = TWO_LEAVES.substr(0, length);
        const std::vector<ImportInput> inputs{{"fabric.txt", cut, ""}};
        const auto imported = import_files(*find_importer("ibnetdiscover"), inputs);
        if (!imported) {
            EXPECT_NE(imported.failure().message.find("fabric.txt: holds no switch"),
                      std::string::npos);
            continue;
        }
        const auto checked = check_topology(to_json(imported->document));
        EXPECT_TRUE(checked.topology) << length << ": " << checked.problems.first_error();
        if (cut.back() != '\n') {
            EXPECT_TRUE(warns(imported->problems, "may be cut off")) << length;
        }
    }
    const Imported half =
        import_text(TWO_LEAVES.substr(0, TWO_LEAVES.find("\nvendid", TWO_LEAVES.find("leaf-b:"))));
    EXPECT_TRUE(warns(half.problems, "switches are named by others but not described"))
        << half.counts.switches;
}

TEST(TopologyIbnetdiscover, UnknownLinesWarn) {
    const Imported imported = import_text(
        switch_block(10, "a",
                     to_host(1, 51, "h1 mlx5_0") +
                         "[x]\tnonsense\n[2]\t\"H-1\"[1]\t\t# \"no guid mlx5_0\" lid 1\n"
                         "[3][ext 7]\t\"H-0000000000000057\"[2][ext 1](57)\t# \"no\" lid 2\n"
                         "[4]\t\"R-0000000000000058\"[1](0000000000000058)\t# \"router\" lid 2\n"
                         "[5]\t\"H-0000000000000051\"[1](0000000000000051)\t# \"h1 mlx5_0\"\n"
                         "surprise\n") +
        "\n[1]\t\"S-0000000000000010\"[1]\nCa\tx\nSwitch 3\nRt\t1 \"R-1\" # "
        "\"router\"\n[1](1)\t\"S-1\"[3]\n");
    ASSERT_EQ(imported.document.ports.size(), 2U);
    EXPECT_EQ(imported.document.ports[1].guid, "0x0000000000000057") << "a port of a chassis";
    EXPECT_EQ(imported.document.ports[1].switch_port, "3");
    EXPECT_EQ(imported.document.ports[1].port, 2U);
    EXPECT_TRUE(warns(imported.problems, "fabric.txt: line 8 is not understood"));
    EXPECT_TRUE(warns(imported.problems, "1 lines name an adapter without a port GUID"));
    EXPECT_TRUE(warns(imported.problems, "is also on another switch port"));
    EXPECT_TRUE(warns(imported.problems, "2 cables lead neither to a switch"));
}

TEST(TopologyIbnetdiscover, OtherTextIsRefused) {
    for (const char *text : {"", "\n\n", "{}", "hello\nworld\n"}) {
        const std::vector<ImportInput> inputs{{"x", text, ""}};
        const auto imported = import_files(*find_importer("ibnetdiscover"), inputs);
        ASSERT_FALSE(imported);
        EXPECT_EQ(imported.failure().kind, ErrorKind::BadInput);
        EXPECT_EQ(detect_importer(text), nullptr);
    }
}

} // namespace
} // namespace collwire::topology
