// SPDX-License-Identifier: Apache-2.0
// The writer on a file system that is really full.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/reader.h"
#include "tests/support/capture_builder.h"
#include "userspace/capture/writer.h"

namespace collwire::capture {
namespace {

using test::make_record;

class TinyDisk : public testing::Test {
protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "mounts a file system: run as root";
        // Mounted nowhere: it goes with its descriptor, and no other process ever sees it.
        const int context_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
        ASSERT_GE(context_fd, 0);
        ASSERT_EQ(fsconfig(context_fd, FSCONFIG_SET_STRING, "size", "256k", 0), 0);
        ASSERT_EQ(fsconfig(context_fd, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0), 0);
        mount_fd = fsmount(context_fd, FSMOUNT_CLOEXEC, 0);
        close(context_fd);
        ASSERT_GE(mount_fd, 0);
        directory = "/proc/self/fd/" + std::to_string(mount_fd);
    }
    void TearDown() override {
        if (mount_fd >= 0)
            close(mount_fd);
    }
    void resize(const char *size) const {
        const int context_fd = fspick(mount_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
        ASSERT_GE(context_fd, 0);
        ASSERT_EQ(fsconfig(context_fd, FSCONFIG_SET_STRING, "size", size, 0), 0);
        ASSERT_EQ(fsconfig(context_fd, FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0), 0);
        close(context_fd);
    }
    [[nodiscard]] std::vector<std::byte> read(const std::string &path) const {
        std::ifstream stream(path, std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(stream)), {});
        const auto bytes = std::as_bytes(std::span(text));
        return {bytes.begin(), bytes.end()};
    }
    std::filesystem::path directory;
    int mount_fd = -1;
};

TEST_F(TinyDisk, TheFileEndsAtAGoodBlockAndTheLossIsCounted) {
    std::uint32_t n_preambles = 0;
    auto made = CaptureWriter::create({.directory = directory, .host = "h"},
                                      [&](source::RecordSink &sink, std::uint32_t) {
                                          n_preambles++;
                                          sink.append(make_record<cw_node>(CW_KIND_NODE, 1).header);
                                      });
    ASSERT_TRUE(made) << made.failure().message;
    CaptureWriter &writer = **made;
    writer.begin(1);
    std::mt19937 random(1);
    std::uint64_t n_appended = 0;
    const auto append = [&] {
        auto qp = make_record<cw_qp_event>(CW_KIND_QP_CREATE, ++n_appended);
        for (char &c : qp.device)
            c = static_cast<char>(random());
        writer.append(qp.header);
    };
    const auto count_in_file = [&] {
        std::uint64_t n = 0;
        const auto summary = read_capture(read(writer.path()),
                                          [&](const cw_header &header, std::span<const std::byte>) {
                                              n += header.kind == CW_KIND_QP_CREATE ? 1 : 0;
                                          });
        EXPECT_TRUE(summary);
        EXPECT_FALSE(summary->cut) << summary->describe();
        return n;
    };
    for (std::uint64_t tick = 0; tick < 100; tick++) {
        for (int i = 0; i < 100; i++)
            append();
        writer.flush(tick);
    }
    EXPECT_GT(writer.lost_records(), 1000U);
    EXPECT_EQ(count_in_file() + writer.lost_records(), n_appended);
    const auto failure = writer.take_failure();
    ASSERT_TRUE(failure);
    EXPECT_NE(failure->message.find("No space left on device"), std::string::npos)
        << failure->message;

    // Somebody makes room.
    ASSERT_NO_FATAL_FAILURE(resize("1m"));
    const std::uint64_t lost = writer.lost_records();
    append();
    writer.flush(200);
    EXPECT_EQ(n_preambles, 2U);
    EXPECT_TRUE(writer.close(201, 0, 5));
    EXPECT_EQ(writer.lost_records(), lost);
    EXPECT_EQ(count_in_file() + lost, n_appended);
    const auto bytes = read(writer.path());
    EXPECT_TRUE(
        read_capture(bytes, [](const cw_header &, std::span<const std::byte>) {})->complete());
}

} // namespace
} // namespace collwire::capture
