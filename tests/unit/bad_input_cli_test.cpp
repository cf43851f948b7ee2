// SPDX-License-Identifier: Apache-2.0
// Files that are not what the command line takes them for: one line each, with path, offset and
// reason; the other files are used.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>

#include "correlate/capture/format.h"
#include "tests/unit/cli_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

constexpr int FAILED = 1;
constexpr int LOSS = 5;

struct Bad {
    std::string name;
    std::string content;
    std::string line; // part of the message after the path
    int report_status;
    int dump_status;
};

std::string text_of(const std::vector<std::byte> &bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::string changed(std::string file, std::size_t at) {
    file[at] = static_cast<char>(file[at] ^ 0x55);
    return file;
}

std::vector<Bad> bad_captures(const std::string &good) {
    constexpr std::size_t header = sizeof(capture::FileHeader);
    constexpr std::size_t block = header + sizeof(capture::BlockHeader);
    return {
        {"empty", "", "offset 0: empty file", FAILED, FAILED},
        {"short", good.substr(0, 5), "offset 5: truncated file", FAILED, FAILED},
        {"half-header", good.substr(0, header - 1), "offset 31: truncated file", FAILED, FAILED},
        {"header", good.substr(0, header), "no record up to offset 32", FAILED, 0},
        {"half-block-header", good.substr(0, block - 1), "cut at offset 32: block 0: truncated",
         FAILED, LOSS},
        {"half-block", good.substr(0, block + 20), "cut at offset 32: block 0: truncated", FAILED,
         LOSS},
        {"corrupt-block", changed(good, block + 20), "cut at offset 32: block 0: corrupt", FAILED,
         LOSS},
        {"cut-end", good.substr(0, good.size() - 1), "cut at offset ", 0, LOSS},
        {"trailing", good + "x", ": truncated, 1 of the 48 bytes", 0, LOSS},
        {"foreign", "#!/bin/sh\necho this is no capture at all\n", "offset 0: foreign file", FAILED,
         FAILED},
        {"foreign-short", "x", "offset 0: foreign file", FAILED, FAILED},
        {"zeros", std::string(100'000, '\0'), "offset 0: foreign file", FAILED, FAILED},
        {"newer", changed(good, offsetof(capture::FileHeader, schema_major)),
         "offset 8: schema version ", FAILED, FAILED},
        {"corrupt-header", changed(good, offsetof(capture::FileHeader, start_realtime_ns)),
         "offset 0: corrupt file header", FAILED, FAILED},
    };
}

std::size_t lines(const std::string &text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class BadCapture : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        NodeBuilder node;
        node.usual(1).capture().end_block();
        good_ = text_of(node.end().bytes());
    }
    std::string good_;
};

TEST_F(BadCapture, OneLineWithPathOffsetAndReason) {
    for (const Bad &bad : bad_captures(good_)) {
        const std::string file = path(bad.name + ".cwc");
        write(bad.name + ".cwc", bad.content);
        for (const std::string verb : {"report", "dump"}) {
            SCOPED_TRACE(verb + " " + bad.name);
            const Outcome outcome = collwire(verb + " " + file);
            EXPECT_EQ(outcome.status, verb == "dump" ? bad.dump_status : bad.report_status);
            EXPECT_EQ(lines(outcome.err), 1U) << outcome.err;
            EXPECT_EQ(outcome.err.rfind("collwire " + verb + ": " + file + ": ", 0), 0U)
                << outcome.err;
            EXPECT_NE(outcome.err.find(bad.line), std::string::npos) << outcome.err;
            if (bad.line.starts_with("offset ")) {
                EXPECT_NE(outcome.err.find(". Fix: "), std::string::npos) << outcome.err;
            }
        }
    }
}

TEST_F(BadCapture, DumpSaysWhyStandardOutputCannotBeWritten) {
    write("good.cwc", good_);
    const std::string line =
        "collwire dump: cannot write to standard output: No space left on device\n";
    // More than a buffer, and less.
    for (const std::string &paths : {path("good.cwc"), path("good.cwc") + " " + path("absent"),
                                     "$(for i in $(seq 100); do cp " + path("good.cwc") + " " +
                                         path("$i.cwc") + "; echo " + path("$i.cwc") + "; done)"}) {
        const Outcome outcome = collwire("dump " + paths + " >/dev/full");
        EXPECT_EQ(outcome.status, FAILED);
        EXPECT_TRUE(outcome.err.ends_with(line)) << outcome.err;
    }
}

TEST_F(BadCapture, TheOthersAreUsedAndEveryBadOneIsNamed) {
    write_all(good_cluster());
    const auto alone = nlohmann::json::parse(collwire("report --json - " + path("")).out);
    const std::vector<Bad> bads = bad_captures(good_);
    for (const Bad &bad : bads)
        write("bad-" + bad.name + ".cwc", bad.content);
    ASSERT_EQ(mkfifo(path("fifo.cwc").c_str(), 0600), 0);
    ASSERT_EQ(symlink("nowhere", path("dangling.cwc").c_str()), 0);

    const Outcome report = collwire("report --json - " + path("") + " " + path("absent"));
    EXPECT_EQ(report.status, FAILED);
    EXPECT_EQ(lines(report.err), bads.size() + 3) << report.err;
    const auto json = nlohmann::json::parse(report.out);
    EXPECT_EQ(json.at("total"), alone.at("total"));
    EXPECT_EQ(json.at("qps"), alone.at("qps"));
    EXPECT_GT(json.at("total").at("tx_wire_bytes"), 0);
    std::size_t unreadable = 0;
    for (const auto &capture : json.at("captures"))
        unreadable += capture.at("end") == "unreadable" ? 1 : 0;
    EXPECT_EQ(unreadable, 8U + 3U);

    const Outcome dump = collwire("dump --kind node " + path("absent") + " " + path(""));
    EXPECT_EQ(dump.status, FAILED);
    EXPECT_EQ(lines(dump.err), bads.size() + 3) << dump.err;
    EXPECT_EQ(lines(dump.out), 3U + 2U) << "the good ones and two that are cut at their end";
}

TEST_F(BadCapture, TopologyVerbsSayWhereAndWhy) {
    struct Case {
        std::string content, check, import;
    };
    std::string newer(LEAF_SPINE);
    const std::string version = "\"collwire_topology\": 1";
    ASSERT_NE(newer.find(version), std::string::npos);
    newer.replace(newer.find(version), version.size(), "\"collwire_topology\": 99");
    const std::string unknown = "unknown format at offset 0";
    const std::vector<Case> cases = {{"", "the file is empty", "the file is empty"},
                                     {"{", "(byte offset 1): the file ends too early", unknown},
                                     {std::string(LEAF_SPINE).substr(0, 100),
                                      "(byte offset 100): the file ends too early", unknown},
                                     {"hello", "(byte offset 0): unexpected text", unknown},
                                     {newer, "version 99 is newer than this program", unknown},
                                     {good_, "this is a capture", unknown}};
    for (const Case &bad : cases) {
        const std::string file = path("x");
        write("x", bad.content);
        for (const std::string verb : {"check", "show", "import"}) {
            SCOPED_TRACE(verb + " " + bad.check);
            const Outcome outcome = collwire("topology " + verb + " " + file);
            EXPECT_EQ(outcome.status, FAILED);
            EXPECT_EQ(outcome.out, "");
            EXPECT_EQ(lines(outcome.err), 1U) << outcome.err;
            EXPECT_NE(outcome.err.find(file + ": "), std::string::npos) << outcome.err;
            EXPECT_NE(outcome.err.find(verb == "import" ? bad.import : bad.check),
                      std::string::npos)
                << outcome.err;
        }
    }
}

TEST_F(BadCapture, NoVerbDiesOfAFullStandardErrorOrOutput) {
    const auto status_of = [](const std::string &command) {
        const int status = std::system((COLLWIRE_BINARY + (" " + command)).c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    };
    EXPECT_EQ(status_of("record --interval 1ms 2>/dev/full"), 2);
    EXPECT_EQ(status_of("dump " + path("none.cwc") + " 2>/dev/full"), 1);
}

TEST_F(BadCapture, ReportSaysWhatItsTopologyIs) {
    write_all(good_cluster());
    for (const auto &[content, message] :
         std::vector<std::pair<std::string, std::string>>{{good_, "this is a capture"},
                                                          {"{\"lldp\": []}", "output of lldpctl"},
                                                          {"{", "(byte offset 1)"}}) {
        write("x", content);
        const Outcome outcome = collwire("report " + path("") + " --topology " + path("x"));
        EXPECT_EQ(outcome.status, FAILED);
        EXPECT_EQ(lines(outcome.err), 1U) << outcome.err;
        EXPECT_NE(outcome.err.find(path("x") + ": "), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    }
}

TEST_F(BadCapture, TopologyVerbsTakeNoDirectoryAndNoFifo) {
    ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
    for (const std::string verb : {"check", "show", "import"}) {
        for (const std::string &file : {path("fifo"), directory_.string(), path("absent")}) {
            const Outcome outcome = collwire("topology " + verb + " " + file);
            EXPECT_EQ(outcome.status, FAILED);
            EXPECT_EQ(outcome.err.rfind("collwire topology: " + file + ": ", 0), 0U) << outcome.err;
        }
    }
}

} // namespace
} // namespace collwire
