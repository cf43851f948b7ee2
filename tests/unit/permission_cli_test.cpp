// SPDX-License-Identifier: Apache-2.0
// The binary without any capability: its exit status, one line, no capture is left.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/unit/cli_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

constexpr int NOT_PERMITTED = 3;
constexpr const char *WITHOUT_CAPABILITIES = "setpriv --bounding-set=-all --inh-caps=-all";

class Permission : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        if (geteuid() != 0)
            return;
        before_ = WITHOUT_CAPABILITIES;
        if (std::system((before_ + " true 2>/dev/null").c_str()) != 0)
            GTEST_SKIP() << "root, but may not drop capabilities (setpriv failed)";
    }
    std::string before_;
};

TEST_F(Permission, RecordSaysWhatIsMissingAndStartsNothing) {
    for (const std::string options : {"", "--dry-run", "--posts=on --no-wire"}) {
        const Outcome outcome = collwire(
            "record -o " + path("out") + " " + options + " -- touch " + path("started"), before_);
        EXPECT_EQ(outcome.status, NOT_PERMITTED) << outcome.err;
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
        EXPECT_NE(outcome.err.find("CAP_SYS_ADMIN"), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find("--counters-only"), std::string::npos) << outcome.err;
        EXPECT_FALSE(std::filesystem::exists(path("started")));
        EXPECT_FALSE(std::filesystem::exists(path("out")));
    }
}

TEST_F(Permission, DoctorSaysTheSame) {
    const Outcome outcome = collwire("doctor --json", before_);
    EXPECT_EQ(outcome.status, NOT_PERMITTED) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json.at("exit_status"), NOT_PERMITTED);
}

TEST_F(Permission, ReportNeedsNone) {
    write_all(good_cluster());
    EXPECT_EQ(collwire("report " + path(""), before_).status, 0);
    EXPECT_EQ(collwire("topology check " + path("topology.json"), before_).status, 0);
}

} // namespace
} // namespace collwire
