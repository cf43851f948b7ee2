// SPDX-License-Identifier: Apache-2.0
// A stripped library with its debug file, which may be in many places, and with a layout of it.
#include "tests/unit/nccl_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/layout/save_layout.h"

namespace collwire::nccl::test {
namespace {

using Paths = std::vector<std::string>;

bool has(const Paths &paths, std::string_view path) {
    return std::ranges::find(paths, path) != paths.end();
}

std::string content_of(const std::string &path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

class DebugFiles : public FakeNccl {
public:
    ~DebugFiles() override { std::filesystem::remove_all(directory_); }

protected:
    DebugFiles() {
        std::string pattern = testing::TempDir() + "collwire-debug-XXXXXX";
        directory_ = mkdtemp(pattern.data());
    }

    static LibraryLayout layout_with(Paths symbols) {
        const auto layout =
            layout_of_file(FAKE_NCCL_STRIPPED, {FAKE_NCCL_STRIPPED, std::move(symbols)});
        EXPECT_TRUE(layout.ok()) << layout.failure().message;
        return *layout;
    }
    void expect_found(const LibraryLayout &layout, const std::string &debug_file) const {
        const auto whole = make_layout(*library_);
        EXPECT_EQ(layout.debug_file, debug_file);
        EXPECT_TRUE(layout.has_symbol_table && layout.has_debug_types);
        EXPECT_EQ(layout.data, whole->data);
        EXPECT_EQ(layout.enumerators, whole->enumerators);
        ASSERT_EQ(layout.probes.size(), whole->probes.size());
        for (std::size_t i = 0; i < layout.probes.size(); ++i) {
            EXPECT_EQ(layout.probes[i].address, whole->probes[i].address);
            EXPECT_EQ(layout.probes[i].file_offset, whole->probes[i].file_offset);
            EXPECT_EQ(layout.probes[i].instruction, whole->probes[i].instruction);
        }
        ASSERT_EQ(layout.offsets.size(), whole->offsets.size());
        EXPECT_EQ(layout.offsets.at("ncclComm.commHash").value,
                  whole->offsets.at("ncclComm.commHash").value);
        EXPECT_EQ(layout.offsets.at("ncclComm.commHash").source, "dwarf of its debug file");
        EXPECT_EQ(layout.offsets.at("ncclComm.rank").source,
                  "dwarf of its debug file, code of a getter");
    }

    std::filesystem::path directory_;
};

TEST(DebugFilePaths, AreWhereGdbSearches) {
    const DebugPlaces places{"/opt/nccl/libnccl.so.2", {"/given"}};
    const Paths paths = debug_file_paths("abcdef", "libnccl.so.2.22.3.debug", places);
    EXPECT_EQ(paths.front(), "/given/.build-id/ab/cdef.debug");
    for (const std::string_view path :
         {"/given/ab/cdef.debug", "/given/libnccl.so.2.22.3.debug", "/given/libnccl.so.2.debug",
          "/given/libnccl.so.2", "/given", "/usr/lib/debug/.build-id/ab/cdef.debug",
          "/opt/nccl/libnccl.so.2.22.3.debug", "/opt/nccl/.debug/libnccl.so.2.22.3.debug",
          "/usr/lib/debug/opt/nccl/libnccl.so.2.22.3.debug"})
        EXPECT_TRUE(has(paths, path)) << path;
    EXPECT_TRUE(debug_file_paths("", "x.debug", places).empty()) << "nothing to know it by";
    EXPECT_EQ(debug_file_paths("abcdef", "", {}), Paths{"/usr/lib/debug/.build-id/ab/cdef.debug"});
}

TEST_F(DebugFiles, LayoutsAreFoundByTheBuildIdThatEndsTheirNames) {
    for (const char *name : {"2.28.9-abcdef.json", "abcdef.json", "abcdef.nccl-plan.json",
                             "2.28.9-0abcdef.json", "2.28.9-abcdef.txt", "abcdef"})
        std::ofstream{directory_ / name} << "{}";
    EXPECT_EQ(layout_paths("abcdef", {{}, {directory_, "/given"}}),
              (Paths{directory_ / "2.28.9-abcdef.json", directory_ / "abcdef.json",
                     directory_ / "abcdef.nccl-plan.json", directory_, "/given"}))
        << "none come with this program";
    EXPECT_TRUE(layout_paths("", {{}, {directory_}}).empty());
    EXPECT_EQ(layout_file_name("2.28.9", "abcdef"), "2.28.9-abcdef.json");
    EXPECT_EQ(layout_file_name("", "abcdef"), "abcdef.json");
}

TEST_F(DebugFiles, OtherBuildsAreLayoutsAndLibraries) {
    for (const char *name : {"2.28.9-b.json", "b.nccl-plan.json", "other.json", "libnccl.so.2",
                             "libnccl.so.2.debug", "README.md"})
        std::ofstream{directory_ / name} << "{}";
    const std::string file = directory_ / "README.md";
    const Paths paths = other_build_paths({{}, {directory_, file}});
    ASSERT_GE(paths.size(), 5U);
    EXPECT_EQ(paths[0], directory_ / "2.28.9-b.json");
    EXPECT_EQ(paths[1], directory_ / "b.nccl-plan.json");
    EXPECT_EQ(paths[2], directory_ / "libnccl.so.2");
    EXPECT_EQ(paths[3], directory_ / "libnccl.so.2.debug");
    EXPECT_EQ(paths[4], file);
    for (int i = 0; i < 100; ++i)
        std::ofstream{directory_ / (std::to_string(i) + ".json")} << "{}";
    const Paths many = other_build_paths({{}, {directory_}});
    EXPECT_LT(many.size(), 100U);
}

TEST_F(DebugFiles, AreFoundByTheirPath) {
    expect_found(layout_with({FAKE_NCCL_DEBUG}), FAKE_NCCL_DEBUG);
    // As it was before it was stripped.
    expect_found(layout_with({FAKE_NCCL}), FAKE_NCCL);
}

TEST_F(DebugFiles, AreFoundByBuildId) {
    const std::string id = library_->build_id();
    const auto place = directory_ / ".build-id" / id.substr(0, 2);
    std::filesystem::create_directories(place);
    const auto file = place / (id.substr(2) + ".debug");
    std::filesystem::copy_file(FAKE_NCCL_DEBUG, file);
    expect_found(layout_with({"/nowhere", directory_.string()}), file.string());
}

TEST_F(DebugFiles, OneOfAnotherBuildIsRefused) {
    std::string bytes = content_of(FAKE_NCCL_DEBUG);
    std::string id;
    for (std::size_t i = 0; i + 1 < library_->build_id().size(); i += 2)
        id += static_cast<char>(std::stoi(library_->build_id().substr(i, 2), nullptr, 16));
    const std::size_t at = bytes.find(id);
    ASSERT_NE(at, std::string::npos);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const std::string other = (directory_ / "other.debug").string();
    std::ofstream{other, std::ios::binary} << bytes;
    const LibraryLayout layout = layout_with({other});
    EXPECT_EQ(layout.debug_file, "");
    EXPECT_FALSE(layout.has_symbol_table);
    EXPECT_NE(layout.not_recorded.find("--symbols"), std::string::npos) << layout.not_recorded;
}

TEST_F(DebugFiles, OtherFilesAreIgnored) {
    const std::string garbage = (directory_ / "garbage").string();
    std::ofstream{garbage} << "{not a layout";
    const std::string cut = (directory_ / "cut").string();
    std::ofstream{cut, std::ios::binary} << content_of(FAKE_NCCL_DEBUG).substr(0, 5000);
    const LibraryLayout layout =
        layout_with({garbage, cut, directory_.string(), "/dev/null", "/nowhere"});
    EXPECT_EQ(layout.debug_file, "");
    EXPECT_FALSE(layout.has_debug_types);
}

// The fake's getters are not what its DWARF says: nothing of it is recorded, or kept.
TEST_F(DebugFiles, NoLayoutIsSavedOfARefusedFile) {
    const auto layout = make_layout(*library_);
    const auto kept = save_layout(*layout, directory_.string(), "1");
    ASSERT_FALSE(kept.ok());
    EXPECT_NE(kept.failure().message.find("no layout to save"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
    EXPECT_FALSE(check_layout(*layout, *library_).ok());
    LibraryLayout other = *layout;
    other.build_id = "00";
    const auto checked = check_layout(other, *library_);
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.failure().message.find("another build-id"), std::string::npos);
}

// The exception table gives the starts of functions, and overrules a debug file.
TEST_F(DebugFiles, FunctionsBeginWhereTheLibrarySays) {
    auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok());
    ASSERT_FALSE(library_->function_starts().empty());
    ASSERT_FALSE(layout->probes.empty());
    EXPECT_TRUE(check_entries(*layout, *library_).ok());
    ++layout->probes.back().entry;
    const auto checked = check_entries(*layout, *library_);
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.failure().message.find("no function begins at"), std::string::npos);
}

TEST_F(DebugFiles, AnUnwritableDirectoryIsAnError) {
    LibraryLayout layout;
    layout.build_id = "abcd";
    const auto kept = save_layout(layout, "/proc/no-such-directory", "1");
    ASSERT_FALSE(kept.ok());
    EXPECT_NE(kept.failure().message.find("Fix: "), std::string::npos);
    const auto written = save_layout(layout, directory_.string(), "1");
    ASSERT_TRUE(written.ok()) << written.failure().message;
    EXPECT_EQ(*written, (directory_ / "abcd.json").string());
    EXPECT_TRUE(parse_layout(content_of(*written)).ok());
}

TEST(SavedLayouts, FilesThatComeWithCollwireAreAsItWritesThem) {
    constexpr std::string_view NEWER_FIELD = "  \"calls_only\": null,\n";
    std::size_t n = 0;
    for (const auto &file : std::filesystem::directory_iterator{NCCL_LAYOUTS}) {
        if (file.path().extension() != ".json")
            continue;
        std::string text = content_of(file.path());
        const auto layout = parse_layout(text);
        ASSERT_TRUE(layout.ok()) << file.path() << layout.failure().message;
        EXPECT_EQ(file.path().filename(), layout_file_name(layout->version, layout->build_id));
        if (text.find(NEWER_FIELD) == std::string::npos)
            text.insert(text.find("  \"capabilities\""), NEWER_FIELD);
        EXPECT_EQ(render_json(*layout, "0.1.0"), text) << file.path();
        ++n;
    }
    EXPECT_GE(n, 30U); // tools/add-nccl adds some
}

} // namespace
} // namespace collwire::nccl::test
