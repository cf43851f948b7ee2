// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/capture_writer_fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

namespace collwire::capture {
namespace {

using test::has;
using test::make_record;
using test::read_file_content;
using test::SECOND_NS;
using test::START_REALTIME_NS;

class RealDirectory : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "capture-test-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        directory = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(directory); }
    static void node_only(source::RecordSink &sink, std::uint32_t segment) {
        auto node = make_record<cw_node>(CW_KIND_NODE, 1);
        node.segment = segment;
        sink.append(node.header);
    }
    static std::vector<std::byte> read(const std::filesystem::path &path) {
        std::ifstream stream(path, std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(stream)), {});
        const auto bytes = std::as_bytes(std::span(text));
        return {bytes.begin(), bytes.end()};
    }
    WriterOptions options() const {
        return {.directory = directory / "new" / "deep", .host = "h", .realtime_ns = [] {
                    return START_REALTIME_NS;
                }};
    }
    std::filesystem::path directory;
};

TEST_F(RealDirectory, MakesTheDirectoryAndAFileThatOnlyItsOwnerReads) {
    auto made = CaptureWriter::create(options(), node_only);
    ASSERT_TRUE(made) << made.failure().message;
    auto &writer = **made;
    EXPECT_EQ(writer.path(), (directory / "new/deep/h-20261121T034500.123Z.cwc").string());
    struct stat status {};
    ASSERT_EQ(stat(writer.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    ASSERT_TRUE(writer.close(5, 0, 0));
    EXPECT_TRUE(read_file_content(read(writer.path())).summary.complete());

    auto second = CaptureWriter::create(options(), node_only);
    ASSERT_TRUE(second);
    EXPECT_EQ((*second)->file_name(), "h-20261121T034500.123Z-1.cwc");
}

TEST_F(RealDirectory, SymbolicLinkIsNotFollowed) {
    std::filesystem::create_directories(directory / "new/deep");
    std::filesystem::create_symlink(directory / "victim",
                                    directory / "new/deep/h-20261121T034500.123Z.cwc");
    auto made = CaptureWriter::create(options(), node_only);
    ASSERT_TRUE(made);
    EXPECT_EQ((*made)->file_name(), "h-20261121T034500.123Z-1.cwc");
    EXPECT_FALSE(std::filesystem::exists(directory / "victim"));
}

TEST_F(RealDirectory, IsForItsOwnerAloneWhateverTheUmask) {
    const mode_t before = umask(0);
    const auto made = CaptureWriter::create(options(), node_only);
    umask(before);
    ASSERT_TRUE(made);
    for (const char *name : {"new", "new/deep"}) {
        struct stat status {};
        ASSERT_EQ(stat((directory / name).c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, 0700U) << name;
    }
}

TEST_F(RealDirectory, OfAnotherUserIsRefusedToRoot) {
    if (geteuid() != 0)
        GTEST_SKIP() << "not root";
    unsetenv("SUDO_UID");
    std::filesystem::create_directories(directory / "theirs");
    ASSERT_EQ(chown((directory / "theirs").c_str(), 65534, 65534), 0);
    std::filesystem::create_directories(directory / "target");
    std::filesystem::create_symlink(directory / "target", directory / "their_link");
    ASSERT_EQ(lchown((directory / "their_link").c_str(), 65534, 65534), 0);
    std::filesystem::create_symlink("target", directory / "own_link");
    auto with = options();
    for (const char *name : {"theirs", "theirs/below", "their_link", "their_link/below"}) {
        with.directory = directory / name;
        const auto made = CaptureWriter::create(with, node_only);
        ASSERT_FALSE(made) << name;
        EXPECT_TRUE(has(made.failure().message, "of user 65534")) << made.failure().message;
        EXPECT_TRUE(has(made.failure().message, "Fix: ")) << made.failure().message;
    }
    EXPECT_TRUE(std::filesystem::is_empty(directory / "theirs"));
    EXPECT_TRUE(std::filesystem::is_empty(directory / "target"));
    with.directory = directory / "own_link/below/../here";
    EXPECT_TRUE(CaptureWriter::create(with, node_only));
    EXPECT_TRUE(std::filesystem::exists(directory / "target/here"));
    // The user who ran sudo leads nobody else anywhere.
    setenv("SUDO_UID", "65534", 1);
    with.directory = directory / "theirs";
    EXPECT_TRUE(CaptureWriter::create(with, node_only));
    unsetenv("SUDO_UID");
}

TEST_F(RealDirectory, ThatIsRemovedMeanwhileIsMadeAgainAndTheLossIsCounted) {
    auto made = CaptureWriter::create(options(), node_only);
    ASSERT_TRUE(made);
    auto &writer = **made;
    writer.begin(SECOND_NS);
    writer.append(make_record<cw_qp_event>(CW_KIND_QP_CREATE, 2).header);
    writer.flush(2 * SECOND_NS);
    EXPECT_EQ(writer.lost_records(), 0U);
    std::filesystem::remove_all(directory / "new");
    writer.append(make_record<cw_qp_event>(CW_KIND_QP_CREATE, 3).header);
    writer.flush(3 * SECOND_NS);
    EXPECT_EQ(writer.lost_records(), 1U);
    const auto failure = writer.take_failure();
    ASSERT_TRUE(failure);
    EXPECT_TRUE(has(failure->message, "was deleted while it was written")) << failure->message;
    ASSERT_TRUE(writer.close(4 * SECOND_NS, 0, 0));
    const auto content = read_file_content(read(writer.path()));
    EXPECT_TRUE(content.summary.complete());
    EXPECT_EQ(content.segments, std::vector<std::uint32_t>{1});
    EXPECT_EQ(content.times_ns.size(), 1U);
}

TEST_F(RealDirectory, DoesNotDeleteAFileThatTookTheNameOfASegment) {
    auto with = options();
    with.keep_ns = 8 * SECOND_NS;
    auto made = CaptureWriter::create(std::move(with), node_only);
    ASSERT_TRUE(made);
    auto &writer = **made;
    writer.begin(SECOND_NS);
    const std::string first = writer.path();
    // The old inode stays in use under another name, so that the new file cannot get its number.
    std::filesystem::rename(first, directory / "kept");
    std::ofstream(first) << "mine";
    for (std::uint64_t second = 2; second < 30; second++)
        writer.flush(second * SECOND_NS);
    EXPECT_GT(writer.deleted_segments(), 5U);
    EXPECT_EQ(std::filesystem::file_size(first), 4U);
    EXPECT_TRUE(std::filesystem::exists(directory / "kept"));
}

// A recorder that is killed at any moment leaves every block that it had written, and nothing that
// looks like more.
TEST_F(RealDirectory, AWriterKilledAtAnyMomentLeavesEveryFlushedRecord) {
    std::mt19937 random(3);
    for (int round = 0; round < 30; round++) {
        SCOPED_TRACE(round);
        const auto here = directory / std::to_string(round);
        int progress[2];
        ASSERT_EQ(pipe(progress), 0);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            auto with = options();
            with.directory = here;
            with.keep_ns = 1000 * SECOND_NS;
            auto made = CaptureWriter::create(std::move(with), node_only);
            for (std::uint64_t tick = 1; made && tick <= 900; tick++) {
                for (int i = 0; i < 20; i++)
                    (*made)->append(make_record<cw_qp_event>(CW_KIND_QP_CREATE, tick).header);
                (*made)->flush(tick * SECOND_NS);
                if (write(progress[1], &tick, sizeof(tick)) != sizeof(tick))
                    _exit(1);
            }
            // Nothing is old enough yet to be deleted.
            for (;;)
                pause();
        }
        ::close(progress[1]);
        std::uint64_t flushed = 0;
        const std::uint64_t last = random() % 300;
        while (flushed < last &&
               ::read(progress[0], &flushed, sizeof(flushed)) == sizeof(flushed)) {
        }
        ASSERT_EQ(kill(child, SIGKILL), 0);
        ASSERT_EQ(waitpid(child, nullptr, 0), child);
        ::close(progress[0]);
        ASSERT_GE(flushed, last);
        std::uint64_t found = 0;
        std::set<std::filesystem::path> files;
        for (const auto &entry : std::filesystem::directory_iterator(here))
            files.insert(entry.path());
        for (const auto &file : files) {
            const auto bytes = read(file);
            // The file of a segment that was only just made may still be empty.
            if (bytes.empty() && files.size() > 1)
                continue;
            found += read_file_content(bytes).qpns.size();
        }
        EXPECT_GE(found, 20 * flushed);
    }
}

TEST_F(RealDirectory, SaysWhyAFileCannotBeADirectory) {
    std::ofstream(directory / "new") << "a file";
    const auto made = CaptureWriter::create(options(), node_only);
    ASSERT_FALSE(made);
    EXPECT_PRED2(has, made.failure().message, "Not a directory");
    EXPECT_PRED2(has, made.failure().message, "-o");
}

} // namespace
} // namespace collwire::capture
