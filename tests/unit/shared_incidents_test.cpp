// SPDX-License-Identifier: Apache-2.0
// Incidents of several ports at one time: which share a switch or a host.
#include "correlate/nccl/shared_incidents.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace collwire::nccl {
namespace {

constexpr std::uint64_t S = 1'000'000'000, BOOT_NS = 1'700'000'000 * S;

// Each host has ports at its switches; clocks of all agree.
struct Fabric {
    model::Model model;
    std::vector<PortIncident> incidents;

    void host(const std::string &name, const std::vector<std::string> &switches) {
        model::Host host;
        host.name = name;
        host.anchors.push_back({0, BOOT_NS});
        model.hosts.push_back(std::move(host));
        for (const std::string &at : switches) {
            model::Device device;
            device.host = static_cast<Index>(model.hosts.size() - 1);
            model.devices.push_back(std::move(device));
            model::Port port;
            port.device = static_cast<Index>(model.devices.size() - 1);
            port.switch_id = at;
            model.ports.push_back(std::move(port));
        }
    }

    void incident(Index port, double at_s) {
        PortIncident one;
        one.port = port;
        one.begin_ns = static_cast<std::uint64_t>(at_s * 1e9);
        one.end_ns = one.begin_ns + S;
        incidents.push_back(std::move(one));
    }

    [[nodiscard]] std::vector<SharedIncident> shared() const {
        return find_shared_incidents(model, incidents);
    }
};

// Four hosts of two ports: the first at leaf-0, the second at leaf-1.
Fabric two_rails() {
    Fabric fabric;
    for (int i = 0; i < 4; ++i)
        fabric.host("node" + std::to_string(i), {"leaf-0", "leaf-1"});
    return fabric;
}

TEST(SharedIncidents, AllPortsOfASwitch) {
    Fabric fabric = two_rails();
    for (const auto &[port, at_s] : {std::pair(1U, 10.0), {3U, 10.4}, {5U, 10.1}, {7U, 10.2}})
        fabric.incident(port, at_s);
    const auto shared = fabric.shared();
    ASSERT_EQ(shared.size(), 1U);
    EXPECT_EQ(shared[0].switch_id, "leaf-1");
    EXPECT_EQ(shared[0].host, NONE);
    EXPECT_EQ(shared[0].ports, 4U);
    EXPECT_EQ(shared[0].known_ports, 4U);
    EXPECT_EQ(shared[0].realtime_ns, BOOT_NS + 10 * S);
    EXPECT_EQ(shared[0].spread_ns, 400'000'000U);
    EXPECT_EQ(shared[0].incidents, (std::vector<std::size_t>{0, 2, 3, 1}));
}

TEST(SharedIncidents, AllPortsOfAHost) {
    Fabric fabric = two_rails();
    fabric.incident(4, 10);
    fabric.incident(5, 10.1);
    const auto shared = fabric.shared();
    ASSERT_EQ(shared.size(), 1U);
    EXPECT_EQ(shared[0].switch_id, "");
    EXPECT_EQ(shared[0].host, 2U);
    EXPECT_EQ(shared[0].ports, 2U);
}

TEST(SharedIncidents, ASwitchAndAHostAtOnce) {
    Fabric fabric = two_rails();
    fabric.host("node4", {"leaf-2", "leaf-3"});
    for (const Index port : {0U, 2U, 4U, 6U, 8U, 9U})
        fabric.incident(port, 10);
    const auto shared = fabric.shared();
    ASSERT_EQ(shared.size(), 2U);
    EXPECT_EQ(shared[0].switch_id, "leaf-0");
    EXPECT_EQ(shared[1].host, 4U);
}

// Two of eight ports of a switch, or at times that are apart.
TEST(SharedIncidents, FewPortsOrOtherTimesShareNothing) {
    Fabric fabric;
    for (int i = 0; i < 8; ++i)
        fabric.host("node" + std::to_string(i), {"leaf-0"});
    fabric.incident(0, 10);
    fabric.incident(1, 10);
    EXPECT_TRUE(fabric.shared().empty());
    for (const Index port : {2U, 3U})
        fabric.incident(port, 13.5);
    EXPECT_TRUE(fabric.shared().empty());
    fabric.incident(4, 11);
    EXPECT_TRUE(fabric.shared().empty());
    fabric.incident(5, 12.9);
    ASSERT_EQ(fabric.shared().size(), 1U);
    EXPECT_EQ(fabric.shared()[0].ports, 4U);
    EXPECT_EQ(fabric.shared()[0].known_ports, 8U);
}

// What went wrong with one port before is not the beginning of it.
TEST(SharedIncidents, AnEarlierIncidentDoesNotCutItInTwo) {
    Fabric fabric;
    for (int i = 0; i < 8; ++i)
        fabric.host("node" + std::to_string(i), {"leaf-0"});
    fabric.host("other", {"leaf-1"});
    fabric.incident(8, 10); // another switch
    fabric.incident(0, 10.5);
    for (Index port = 1; port < 8; ++port)
        fabric.incident(port, 12.9 + 0.1 * port);
    const auto shared = fabric.shared();
    ASSERT_EQ(shared.size(), 1U);
    EXPECT_EQ(shared[0].ports, 7U);
    EXPECT_EQ(shared[0].spread_ns, 600'000'000U);
}

// One port that flaps is one port.
TEST(SharedIncidents, APortThatFlapsIsNotTwo) {
    Fabric fabric = two_rails();
    fabric.incident(0, 10);
    fabric.incident(0, 11);
    EXPECT_TRUE(fabric.shared().empty());
}

TEST(SharedIncidents, WithoutATopologyHostsRemain) {
    Fabric fabric;
    fabric.host("node0", {"", ""});
    fabric.host("node1", {"", ""});
    for (const Index port : {0U, 1U, 2U, 3U})
        fabric.incident(port, 10);
    const auto shared = fabric.shared();
    ASSERT_EQ(shared.size(), 2U);
    EXPECT_EQ(shared[0].host, 0U);
    EXPECT_EQ(shared[1].host, 1U);
}

} // namespace
} // namespace collwire::nccl
