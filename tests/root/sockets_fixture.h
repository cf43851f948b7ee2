// SPDX-License-Identifier: Apache-2.0
// A source of sockets under root, and a process that it watches.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/file_limit.h"
#include "collwire/node_records.h"
#include "collwire/socket_records.h"
#include "tests/support/tcp_pair.h"
#include "userspace/inventory/process.h"
#include "userspace/sources/socket_source.h"

namespace collwire::test {

inline constexpr std::uint32_t END_FLAGS = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;

inline bool run(const std::string &command) {
    return system((command + " >/dev/null 2>&1").c_str()) == 0;
}

inline bool raise_loopback() {
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::snprintf(request.ifr_name, sizeof(request.ifr_name), "lo");
    request.ifr_flags = IFF_UP;
    return ioctl(any.get(), SIOCSIFFLAGS, &request) == 0;
}

// A process that does what it is sent, step by step, and says a number after each.
class Helper {
public:
    using Steps = std::function<void(Helper &)>;

    explicit Helper(const Steps &steps) {
        std::array<int, 2> to{};
        std::array<int, 2> from{};
        if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0)
            return;
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            in_ = Fd(to[0]);
            out_ = Fd(from[1]);
            close(to[1]);
            close(from[0]);
            steps(*this);
            _exit(0);
        }
        in_ = Fd(from[0]);
        out_ = Fd(to[1]);
        close(to[0]);
        close(from[1]);
    }
    Helper(const Helper &) = delete;
    Helper &operator=(const Helper &) = delete;
    ~Helper() { end(); }

    // In the helper.
    void wait_for_word() {
        std::uint64_t word = 0;
        if (read(in_.get(), &word, sizeof(word)) != sizeof(word))
            _exit(1);
    }
    // In either: a number to the other one.
    void say(std::uint64_t number) {
        if (write(out_.get(), &number, sizeof(number)) != sizeof(number))
            ADD_FAILURE() << "the other process is gone";
    }
    // In the test.
    std::uint64_t next() {
        std::uint64_t number = 0;
        EXPECT_EQ(read(in_.get(), &number, sizeof(number)), ssize_t{sizeof(number)});
        return number;
    }
    void go() { say(1); }
    void end() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        pid_ = -1;
    }
    [[nodiscard]] std::uint32_t tgid() const { return static_cast<std::uint32_t>(pid_); }

private:
    pid_t pid_ = -1;
    Fd in_;
    Fd out_;
};

inline void move_in_helper(const Fd &from, const Fd &to, std::size_t bytes) {
    TcpPair::move(from, to, bytes);
    wait_until_acknowledged(from);
}

class RootSockets : public testing::Test {
protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        raise_file_limit();
        sources::SocketOptions options;
        options.interval_ns = 0;
        source = std::make_unique<sources::SocketSource>(std::move(options));
        ASSERT_TRUE(source->prepare());
        ASSERT_TRUE(source->attach());
        if (source->states().at(0).state == CW_SOURCE_UNAVAILABLE)
            GTEST_SKIP() << source->states().at(0).reason;
    }
    void watch(const Helper &helper, std::uint32_t fd, bool connected) {
        source->watch(helper.tgid(), fd, inventory::socket_inode(helper.tgid(), fd), connected);
    }
    template <typename Condition> TcpRecords sample_until(Condition condition) {
        TcpRecords records;
        for (int i = 0; i < 1000 && !condition(records); ++i) {
            usleep(10'000);
            sample_into(records, *source);
        }
        return records;
    }
    [[nodiscard]] std::string reasons() const {
        std::string all;
        for (const source::SourceState &state : source->states())
            all += state.reason;
        return all;
    }

    std::unique_ptr<sources::SocketSource> source;
};

} // namespace collwire::test
