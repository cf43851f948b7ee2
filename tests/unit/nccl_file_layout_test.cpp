// SPDX-License-Identifier: Apache-2.0
// Layouts of the double, of stripped copies of it, and of files that are no NCCL.
#include "tests/unit/nccl_fixture.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/stat.h>

#include "tests/unit/fake_nccl/fake_nccl.h"

namespace collwire::nccl::test {
namespace {

bool lacks(const Capability &capability, std::string_view name) {
    return std::ranges::any_of(
        capability.missing, [&](const std::string &missing) { return missing.starts_with(name); });
}

class TemporaryDirectory {
public:
    TemporaryDirectory() {
        std::string pattern = testing::TempDir() + "collwire-nccl-XXXXXX";
        path_ = mkdtemp(pattern.data());
    }
    TemporaryDirectory(const TemporaryDirectory &) = delete;
    TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file(std::string_view name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

std::string written(const std::string &path, std::string_view content) {
    std::ofstream{path, std::ios::binary} << content;
    return path;
}

TEST_F(FakeNccl, LayoutHasFunctionsAndOffsets) {
    const auto layout = layout_of_file(FAKE_NCCL);
    ASSERT_TRUE(layout.ok()) << layout.failure().message;
    EXPECT_EQ(layout->file, FAKE_NCCL);
    EXPECT_EQ(layout->version, "2.99.7");
    EXPECT_EQ(layout->build_id, library_->build_id());
    EXPECT_EQ(layout->build_id.size(), 40u);
    EXPECT_TRUE(layout->has_symbol_table && layout->has_debug_types);
    ASSERT_EQ(layout->capabilities.size(), 8u);
    EXPECT_EQ(layout->offsets.at("ncclComm.commHash").value, offsetof(ncclComm, commHash));
    EXPECT_EQ(layout->offsets.at("ncclComm.channels").elements, 64u);
    EXPECT_EQ(layout->offsets.at("ncclComm.rank").source, "dwarf, code of a getter");
    EXPECT_EQ(layout->offsets.at("ncclComm.commHash").source, "dwarf");
    EXPECT_EQ(layout->offsets.at("ncclChannel").value, sizeof(ncclChannel));
    EXPECT_EQ(layout->enumerators.at("ncclFuncAllReduce"), 4);

    const auto start =
        std::ranges::find(layout->probes, "ncclProxyStart", &ProbedFunction::function);
    ASSERT_NE(start, layout->probes.end());
    EXPECT_TRUE(start->emulated) << start->instruction;
    EXPECT_TRUE(start->registers.contains("plan"));
    EXPECT_EQ(start->address, symbol("ncclProxyStart").address);
}

// Where operations go to the proxy before a launch: in the inlined copy of ncclProxyPost, after the
// test.
TEST_F(FakeNccl, ProbeInsideOfAFunction) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    const auto early =
        std::ranges::find(layout->probes, "ncclLocalOpAppend", &ProbedFunction::function);
    ASSERT_NE(early, layout->probes.end());
    const auto append = symbol("ncclLocalOpAppend");
    EXPECT_EQ(early->entry, append.address);
    EXPECT_GT(early->address, append.address);
    EXPECT_LT(early->address, append.address + append.bytes);
    EXPECT_TRUE(early->emulated) << early->instruction;
}

TEST_F(FakeNccl, MissingNamesLowerTheCertainty) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    const Capability *operations = find_capability(*layout, "operations");
    ASSERT_NE(operations, nullptr);
    EXPECT_EQ(operations->rung, Certainty::Process) << "nothing is recorded without it";
    EXPECT_TRUE(lacks(*operations, "ncclEnqueueCheck"));
    EXPECT_FALSE(lacks(*operations, "ncclProxyStart"));
    EXPECT_EQ(find_capability(*layout, "bytes")->rung, Certainty::Process);
    EXPECT_EQ(find_capability(*layout, "nothing"), nullptr);
}

TEST(NcclLayout, ABasisNamesTheFileThatTheLayoutWasMadeWith) {
    LibraryLayout layout;
    layout.capabilities = {{"operations", Certainty::Inferred, "layouts of another build", {}},
                           {"bytes", Certainty::Process, {}, {}}};
    EXPECT_EQ(basis_of(layout, "operations"), "layouts of another build");
    layout.debug_file = "/a/long/place/other.json";
    EXPECT_EQ(basis_of(layout, "operations"),
              "layouts of another build (/a/long/place/other.json)");
    EXPECT_EQ(basis_of(layout, "operations", 40), "layouts of another build (other.json)");
    EXPECT_EQ(basis_of(layout, "bytes"), "");
    EXPECT_EQ(basis_of(layout, "nothing"), "");
}

TEST_F(FakeNccl, AGetterThatReadsElsewhereIsReported) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    const Capability *communicators = find_capability(*layout, "communicators");
    EXPECT_NE(communicators->rung, Certainty::Exact);
    EXPECT_TRUE(lacks(*communicators, "ncclComm.nRanks (ncclCommCount reads it elsewhere"));
    EXPECT_FALSE(lacks(*communicators, "ncclComm.rank ("));
}

TEST_F(FakeNccl, StrippedCopiesAreNotRecorded) {
    for (const auto &[path, symbols] :
         {std::pair{FAKE_NCCL_NO_DEBUG, true}, std::pair{FAKE_NCCL_STRIPPED, false}}) {
        const auto layout = layout_of_file(path);
        ASSERT_TRUE(layout.ok()) << layout.failure().message;
        EXPECT_EQ(layout->has_symbol_table, symbols) << path;
        EXPECT_FALSE(layout->has_debug_types) << path;
        EXPECT_EQ(layout->version, "2.99.7");
        EXPECT_EQ(layout->build_id, library_->build_id());
        EXPECT_TRUE(layout->offsets.empty());
        EXPECT_NE(layout->not_recorded.find("it was stripped: it has no "), std::string::npos)
            << layout->not_recorded;
        EXPECT_EQ(layout->not_recorded.find("symbols (.symtab)") == std::string::npos, symbols);
        EXPECT_NE(layout->not_recorded.find("Fix: "), std::string::npos);
        for (const Capability &capability : layout->capabilities) {
            EXPECT_EQ(capability.rung, Certainty::Process) << capability.name;
            EXPECT_TRUE(lacks(capability, "types (DWARF)")) << capability.name;
            EXPECT_EQ(capability.source, "");
        }
        for (const ProbedFunction &probe : layout->probes)
            EXPECT_EQ(placed_when(*layout, probe), Placed::Never) << probe.function;
    }
}

TEST_F(FakeNccl, RefusedFilesHaveNoCertainty) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    EXPECT_NE(
        layout->not_recorded.find("ncclEnqueueCheck, ncclComm.nRanks (ncclCommCount reads it"),
        std::string::npos)
        << layout->not_recorded;
    for (const Capability &capability : layout->capabilities) {
        EXPECT_EQ(capability.rung, Certainty::Process) << capability.name;
        EXPECT_EQ(std::ranges::count(capability.missing, "ncclEnqueueCheck"), 1) << capability.name;
    }
}

// What doctor says of a probe is what the recorder does.
TEST(NcclLayout, WhenProbesArePlaced) {
    LibraryLayout layout;
    layout.version = "2.28.9";
    layout.capabilities.push_back({"times", Certainty::Exact, {}, {}});
    const auto placed = [&](std::string_view function) {
        ProbedFunction probe;
        probe.function = function;
        return placed_name(placed_when(layout, probe));
    };
    for (const std::string_view function :
         {"ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart"})
        EXPECT_EQ(placed(function), "always") << function;
    EXPECT_EQ(placed("hostStreamPlanTask"), "--local-launches");
    EXPECT_EQ(placed("ncclProfilerStopProxyOpEvent"), "--network-times");
    for (const std::string_view function :
         {"ncclRasCommFini", "ncclIbCloseSend", "hostStreamPlanCallback", "ncclDebugLog"})
        EXPECT_EQ(placed(function), "") << function;
    layout.probes.emplace_back().function = "ncclDebugLog";
    EXPECT_EQ(placed("ncclDebugLog"), "--warnings");
    layout.probes.emplace_back().function = "ncclDebugLogV";
    EXPECT_EQ(placed("ncclDebugLog"), "") << "it is for plugins alone";
    EXPECT_EQ(placed("ncclDebugLogV"), "--warnings");
    EXPECT_EQ(placed("ncclSocketClose"), "") << "nothing would show what the socket is for";
    layout.offsets = {{"ncclSocket.type", {}}, {"ncclSocket.socketDescriptor", {}}};
    EXPECT_EQ(placed("ncclSocketClose"), "") << "nor what its numbers mean";
    layout.enumerators = {{"ncclPatternRing", 1}, {"ncclSocketTypeBootstrap", 1}};
    EXPECT_EQ(placed("ncclSocketClose"), "always");
    layout.version = "2.26.5";
    EXPECT_EQ(placed("hostStreamPlanTask"), "") << "ncclProxyStart shows each launch";
    layout.capabilities[0].rung = Certainty::Inferred;
    EXPECT_EQ(placed("ncclProfilerStopProxyOpEvent"), "") << "ends alone show less than samples";
    layout.not_recorded = "a reason";
    EXPECT_EQ(placed("ncclProxyStart"), "");
}

TEST_F(FakeNccl, DocumentsComeBackAsTheyWere) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    const std::string document = render_json(*layout, "1");
    const auto again = parse_layout(document);
    ASSERT_TRUE(again.ok()) << again.failure().message;
    EXPECT_EQ(render_json(*again, "1"), document);
    EXPECT_EQ(render_text(*again), render_text(*layout));
}

TEST(NcclLayout, OtherDocumentsAreRefused) {
    for (const std::string_view text :
         {"", "{}", "[]", "null", R"({"schema": "collwire-nccl-plan", "schema_version": 99})",
          R"({"schema": "collwire-nccl-plan", "schema_version": 1, "file": 7})"})
        EXPECT_FALSE(parse_layout(text).ok()) << text;
}

TEST(NcclLayout, OtherFilesAreRefused) {
    const TemporaryDirectory directory;
    const auto refused = [](const std::string &path, std::string_view why) {
        const auto layout = layout_of_file(path);
        ASSERT_FALSE(layout.ok()) << path;
        EXPECT_TRUE(layout.failure().message.starts_with(path + ": ")) << layout.failure().message;
        EXPECT_NE(layout.failure().message.find(why), std::string::npos)
            << layout.failure().message;
    };
    refused(directory.file("absent"), "No such file");
    refused(directory.file("."), "not a regular file");
    refused(written(directory.file("empty"), ""), "empty");
    refused(written(directory.file("text"), std::string(4096, 'x')), "no ELF magic");
    refused(written(directory.file("short"), "\x7f"
                                             "ELF"),
            "shorter than an ELF header");
    const std::string fifo = directory.file("fifo");
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    refused(fifo, "not a regular file"); // and nothing waits at it
    refused("/proc/self/exe", "defines no ncclAllReduce");
}

} // namespace
} // namespace collwire::nccl::test
