// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include "userspace/record/say.h"

namespace collwire::record {
namespace {

TEST(Say, AFullStandardErrorIsNoError) {
    const int before = dup(STDERR_FILENO);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    ASSERT_EQ(dup2(full, STDERR_FILENO), STDERR_FILENO);
    close(full);
    EXPECT_NO_THROW(say("{} records", 3));
    close(STDERR_FILENO);
    EXPECT_NO_THROW(say_line("not read"));
    dup2(before, STDERR_FILENO);
    close(before);
}

TEST(Say, OneLineAtOnce) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const int before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    say("{} of {}", 1, 2);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    char text[64] = {};
    EXPECT_EQ(read(ends[0], text, sizeof(text) - 1), 17);
    EXPECT_STREQ(text, "collwire: 1 of 2\n");
    close(ends[0]);
}

TEST(Say, APipeWithoutAReaderIsLeftAlone) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const int before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const std::string line(8000, 'x');
    for (int i = 0; i < 100; ++i) // ten times what a pipe holds
        say_line(line);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[0]);
    close(ends[1]);
}

} // namespace
} // namespace collwire::record
