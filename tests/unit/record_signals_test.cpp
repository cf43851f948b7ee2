// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "userspace/record/signals.h"

namespace collwire::record {
namespace {

// As the process that starts the recorder left it; as it was when the test is over.
class Disposition {
public:
    Disposition(int signal, void (*handler)(int)) : signal_(signal) {
        struct sigaction wanted {};
        wanted.sa_handler = handler;
        sigaction(signal_, &wanted, &before_);
    }
    ~Disposition() { sigaction(signal_, &before_, nullptr); }
    Disposition(const Disposition &) = delete;
    Disposition &operator=(const Disposition &) = delete;

private:
    int signal_;
    struct sigaction before_ {};
};

TEST(SignalsTest, HangUpIsReadUnlessItWasIgnored) {
    {
        const Disposition as_usual(SIGHUP, SIG_DFL);
        Signals signals;
        ASSERT_TRUE(signals.open());
        ASSERT_EQ(raise(SIGHUP), 0);
        const auto got = signals.next();
        ASSERT_TRUE(got);
        EXPECT_EQ(got->ssi_signo, static_cast<unsigned>(SIGHUP));
    }
    const Disposition nohup(SIGHUP, SIG_IGN);
    Signals signals;
    ASSERT_TRUE(signals.open());
    ASSERT_EQ(raise(SIGHUP), 0);
    EXPECT_FALSE(signals.next());
    ASSERT_EQ(raise(SIGTERM), 0);
    EXPECT_TRUE(signals.next());
}

TEST(SignalsTest, AnEndedCommandCanBeWaitedForUnderAnyParent) {
    const Disposition ignored(SIGCHLD, SIG_IGN);
    Signals signals;
    ASSERT_TRUE(signals.open());
    const pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_TRUE(signals.next());
}

} // namespace
} // namespace collwire::record
