// SPDX-License-Identifier: Apache-2.0
// `topology import` with the outputs of several hosts.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/unit/cli_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

constexpr int USAGE = 2;

class LldpFiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("a.lldp", lldp("leaf0", "00:00:00:00:00:01", "swp1"));
        write("b.lldp", lldp("leaf1", "00:00:00:00:00:02", "swp2"));
    }
    // The switch of each host, as imported.
    [[nodiscard]] std::map<std::string, std::string> imported(const std::string &words) const {
        const Outcome outcome = collwire("topology import " + words);
        EXPECT_EQ(outcome.status, 0) << words << ": " << outcome.err;
        std::map<std::string, std::string> switches;
        if (outcome.status == 0) {
            const auto document = nlohmann::json::parse(outcome.out);
            for (const auto &port : document.at("ports"))
                switches[port.at("host")] = port.at("switch");
        }
        return switches;
    }

private:
    static std::string lldp(const std::string &name, const std::string &mac,
                            const std::string &port) {
        return R"({"lldp": [{"interface": [{"name": "eth0", "chassis": [{"id": [{"type": "mac", )"
               R"("value": ")" +
               mac + R"("}], "name": [{"value": ")" + name +
               R"("}]}], "port": [{"id": [{"type": "ifname", "value": ")" + port + R"("}]}]}]}]})";
    }
};

TEST_F(LldpFiles, HostsStandBeforeBetweenOrAfterTheFiles) {
    const std::string a = path("a.lldp"), b = path("b.lldp");
    const std::map<std::string, std::string> expected{{"gpu-a", "leaf0"}, {"gpu-b", "leaf1"}};
    EXPECT_EQ(imported("--host gpu-a " + a + " --host gpu-b " + b), expected);
    EXPECT_EQ(imported(a + " --host gpu-a " + b + " --host gpu-b"), expected);
    EXPECT_EQ(imported(a + " " + b + " --host gpu-a --host gpu-b"), expected);
    EXPECT_EQ(imported("--host gpu-a --host gpu-b " + a + " " + b), expected);
    EXPECT_EQ(imported("--host=gpu-a --host=gpu-b --format lldpctl " + a + " " + b), expected);
}

TEST_F(LldpFiles, AHostForEachFile) {
    const Outcome outcome =
        collwire("topology import --host gpu-a " + path("a.lldp") + " " + path("b.lldp"));
    EXPECT_EQ(outcome.status, USAGE);
    EXPECT_NE(outcome.err.find("2 files but 1 --host options. Fix: "), std::string::npos)
        << outcome.err;
}

} // namespace
} // namespace collwire
