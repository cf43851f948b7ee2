// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "correlate/report/names.h"
#include "correlate/report/overview.h"
#include "correlate/roles/guess_roles.h"
#include "tests/support/model_of.h"
#include "tests/support/scenarios.h"

namespace collwire::report {
namespace {

std::string line_of(const model::Model &model, const std::string &name) {
    const auto lines = overview_of(model, roles::guess_roles(model));
    const auto found = std::ranges::find(lines, name, &OverviewLine::name);
    return found == lines.end() ? std::string() : found->text;
}

// The port with the highest share of its rate, not the one with the most bytes.
TEST(ReportOverview, NamesTheBusiestPort) {
    model::Model model = test::model_of(test::good_cluster());
    ASSERT_GE(model.ports.size(), 2U);
    const auto window = window_of(model);
    ASSERT_TRUE(window);
    const std::uint64_t ns = window->end_ns - window->begin_ns;
    for (model::Port &port : model.ports)
        port.bytes.tx_wire_bytes = port.bytes.rx_wire_bytes = std::nullopt;
    EXPECT_EQ(line_of(model, "NICs"), "");
    model.ports[0].rate_mbps = 400'000;
    model.ports[0].bytes.tx_wire_bytes = 5 * ns; // 5 GB/s
    model.ports[0].bytes.rx_wire_bytes = ns;
    model.ports[1].rate_mbps = 100'000;
    model.ports[1].bytes.tx_wire_bytes = 0;
    model.ports[1].bytes.rx_wire_bytes = 4 * ns;
    const model::Device &device = model.devices[model.ports[1].device];
    EXPECT_EQ(line_of(model, "NICs"),
              "busiest of 2: " + device.name + " of " + model.hosts[device.host].name +
                  ", 4 GB/s on average in one direction, 32.0 % of its 100 Gb/s");
    model.ports[0].bytes.rx_wire_bytes = 0;
    model.ports[0].bytes.tx_wire_bytes = model.ports[1].bytes.rx_wire_bytes = ns / 100'000;
    EXPECT_NE(line_of(model, "NICs").find("0.01 MB/s on average in one direction, less than 0.1 %"),
              std::string::npos)
        << line_of(model, "NICs");
}

TEST(ReportOverview, NamesWhatWasNotRecorded) {
    model::Model model = test::model_of(test::good_cluster());
    for (model::Session &session : model.sessions) {
        session.sources.clear();
        session.sources[{"posts", 0}] = {.name = "posts", .state = CW_SOURCE_REFUSED, .reason = {}};
        session.sources[{"nccl", 0}] = {.name = "nccl", .state = CW_SOURCE_DEGRADED, .reason = {}};
    }
    model.sessions.front().sources[{"gpu", 0}] = {
        .name = "gpu", .state = CW_SOURCE_OFF, .reason = {}};
    model.sessions.front().sources[{"qp", 0}] = {.name = "qp", .state = CW_SOURCE_ON, .reason = {}};
    const std::string on = " (on " + std::to_string(model.hosts.size()) + " hosts)";
    EXPECT_EQ(line_of(model, "not recorded"),
              "not asked for: gpu; in part: nccl" + on + "; not possible: posts" + on);
}

} // namespace
} // namespace collwire::report
