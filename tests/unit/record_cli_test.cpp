// SPDX-License-Identifier: Apache-2.0
// What `record` is given that it cannot take: one line, status 2, nothing recorded.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/cli_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

constexpr int USAGE = 2;

class RecordOptionsGiven : public Cli {
protected:
    void refused(const std::string &options, const std::string &because) const {
        SCOPED_TRACE(options);
        const Outcome outcome = collwire("record -o " + path("out") + " " + options);
        EXPECT_EQ(outcome.status, USAGE) << outcome.err;
        EXPECT_EQ(outcome.out, "");
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
        EXPECT_TRUE(outcome.err.starts_with("collwire: ")) << outcome.err;
        EXPECT_NE(outcome.err.find(because), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find("Fix: "), std::string::npos) << outcome.err;
        EXPECT_FALSE(std::filesystem::exists(path("out")));
    }
};

// As a script makes them of variables that are not set.
TEST_F(RecordOptionsGiven, EmptyOnesAreNotTakenForNoLimit) {
    for (const std::string option : {"--duration", "--interval", "--keep", "--max", "--ring"}) {
        refused(option + " ''", option);
        refused(option + " 0", option);
    }
    refused("--pid ''", "--pid");
    refused("--", "nothing after --");
}

TEST_F(RecordOptionsGiven, ProcessesThatAreNone) {
    refused("-p 0", "'0' is not a process id");
    refused("-p x", "'x' is not a process id");
    refused("-p 1,4194305", "'4194305' is not a process id");
    refused("-p 4194304", "no process 4194304");
    refused("--container web", "no id of a container");
    refused("--pod ''", "--pod");
    refused("--job 4711x", "no Slurm job");
}

TEST_F(RecordOptionsGiven, LimitsThatCannotBeKept) {
    refused("--max 1KiB", "--max 1KiB");
    refused("--interval 1ms", "--interval 1ms");
    refused("--ring 5000", "--ring 5000");
    for (const std::string budget : {"0.3", "0%", "-1%", "101%", "x%", "nan%", "0.3%%", "''"})
        refused("--budget " + budget, "Fix: --budget 0.3%");
    refused("--ring 8M", "--ring");
    for (const std::string slice : {"1s", "1s/", "/60s", "1s/1s", "10ms/60s", "60s/1s", "x/60s"})
        refused("--posts-slice=" + slice, "Fix: --posts-slice=1s/60s");
}

TEST_F(RecordOptionsGiven, ACommandFollowsTwoDashes) {
    refused("captures", "-o captures");
    refused("captures --duration 1s", "captures: not expected");
}

TEST_F(RecordOptionsGiven, ThatDoNotGoTogether) {
    refused("--counters-only -p 1", "--pid");
    refused("--counters-only --container 1", "--container");
    refused("--counters-only --posts=on", "--posts");
    refused("--counters-only --posts-slice=1s/60s", "--posts-slice");
    refused("--posts=on --posts-slice=1s/60s", "has no slices");
    refused("--inject 1", "--gpu");
    refused("--gpu --inject 1 -p " + std::to_string(getpid()), "--inject");
    refused("--gpu --inject 0x1", "--inject");
}

TEST_F(RecordOptionsGiven, UnknownVerbsAndOptions) {
    for (const std::string arguments : {"", "bogus", "record --bogus"}) {
        SCOPED_TRACE(arguments);
        const Outcome outcome = collwire(arguments);
        EXPECT_EQ(outcome.status, USAGE);
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
        EXPECT_NE(outcome.err.find("--help"), std::string::npos) << outcome.err;
    }
}

} // namespace
} // namespace collwire
