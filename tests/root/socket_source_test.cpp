// SPDX-License-Identifier: Apache-2.0
// Sockets in other network namespaces, over links that lose frames, and many of them.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/tcp_pair.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_limit.h"
#include "userspace/inventory/process.h"
#include "userspace/sources/socket_source.h"

namespace collwire {
namespace {

using test::Fd;
using test::Listener;
using test::sample_into;
using test::TcpPair;
using test::TcpRecords;

constexpr std::uint32_t END_FLAGS = CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL;

bool run(const std::string &command) {
    return system((command + " >/dev/null 2>&1").c_str()) == 0;
}

bool raise_loopback() {
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::snprintf(request.ifr_name, sizeof(request.ifr_name), "lo");
    request.ifr_flags = IFF_UP;
    return ioctl(any.get(), SIOCSIFFLAGS, &request) == 0;
}

// A process that does what it is told, step by step, and says a number after each.
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

void move_in_helper(const Fd &from, const Fd &to, std::size_t bytes) {
    TcpPair::move(from, to, bytes);
    usleep(100'000);
}

class RootSockets : public testing::Test {
protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        raise_file_limit();
        SocketOptions options;
        options.interval_ns = 0;
        source = std::make_unique<SocketSource>(std::move(options));
        ASSERT_TRUE(source->prepare());
        ASSERT_TRUE(source->attach());
        if (source->states().at(0).state == CW_SOURCE_UNAVAILABLE)
            GTEST_SKIP() << source->states().at(0).reason;
    }
    void watch(const Helper &helper, std::uint32_t fd, bool connected) {
        source->watch(helper.tgid(), fd, socket_inode(helper.tgid(), fd), connected);
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
        for (const SourceState &state : source->states())
            all += state.reason;
        return all;
    }

    std::unique_ptr<SocketSource> source;
};

TEST_F(RootSockets, InAnotherNetworkNamespace) {
    struct stat own {};
    ASSERT_EQ(stat("/proc/self/ns/net", &own), 0);
    // Goes away with the namespace that it leads to.
    const std::string link = fmt::format("cws{}", getpid() % 100'000);
    Helper helper([&](Helper &self) {
        if (unshare(CLONE_NEWNET) != 0 || !raise_loopback())
            _exit(1);
        self.say(1);
        self.wait_for_word();
        Listener listener;
        TcpPair pair(listener);
        self.say(pair.connected.number());
        self.say(pair.accepted.number());
        self.wait_for_word();
        move_in_helper(pair.connected, pair.accepted, 123'456);
        self.say(0);
        self.wait_for_word();
        move_in_helper(pair.connected, pair.accepted, 44);
        self.say(0);
        self.wait_for_word(); // for ever
    });
    ASSERT_EQ(helper.next(), 1U);
    const bool has_link =
        run(fmt::format("ip link add {} type veth peer name in netns {}", link, helper.tgid()));
    helper.go();
    const auto connected = static_cast<std::uint32_t>(helper.next());
    const auto accepted = static_cast<std::uint32_t>(helper.next());
    watch(helper, connected, true);
    watch(helper, accepted, false);
    helper.go();
    helper.next();
    TcpRecords records;
    sample_into(records, *source);
    ASSERT_TRUE(records.last_of(connected) && records.last_of(accepted)) << reasons();
    EXPECT_EQ(records.last_of(connected)->acked_bytes, 123'456U);
    EXPECT_EQ(records.last_of(accepted)->received_bytes, 123'456U);
    struct stat theirs {};
    ASSERT_EQ(stat(fmt::format("/proc/{}/ns/net", helper.tgid()).c_str(), &theirs), 0);
    EXPECT_EQ(records.last_of(connected)->netns, theirs.st_ino);
    EXPECT_NE(records.last_of(connected)->netns, own.st_ino);
    // The recorder stayed where it was.
    struct stat now {};
    ASSERT_EQ(stat("/proc/thread-self/ns/net", &now), 0);
    EXPECT_EQ(now.st_ino, own.st_ino);

    helper.go();
    helper.next();
    helper.end();
    records = sample_until([&](const TcpRecords &seen) {
        return seen.has_end_of(connected) && seen.has_end_of(accepted);
    });
    ASSERT_TRUE(records.last_of(connected) && records.last_of(accepted));
    EXPECT_EQ(records.last_of(connected)->acked_bytes, 123'500U);
    EXPECT_EQ(records.last_of(accepted)->received_bytes, 123'500U);
    EXPECT_EQ(records.last_of(connected)->flags & END_FLAGS, END_FLAGS);
    EXPECT_EQ(source->n_watched(), 0U);
    EXPECT_EQ(reasons(), "");
    // Nothing keeps the namespace: its end of the link goes, and so does this one.
    const std::string file = "/sys/class/net/" + link;
    for (int i = 0; has_link && i < 500 && access(file.c_str(), F_OK) == 0; ++i)
        usleep(10'000);
    EXPECT_TRUE(!has_link || access(file.c_str(), F_OK) != 0);
}

bool become_nobody() {
    constexpr unsigned NOBODY = 65534;
    return setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
}

// Whether a recorder without privileges says this of a socket of another process.
bool nobody_says(std::uint32_t tgid, std::uint32_t fd, const std::string &reason) {
    const std::uint64_t inode = socket_inode(tgid, fd);
    Helper looker([&](Helper &self) {
        SocketSource mine{SocketOptions{}};
        if (!become_nobody() || !mine.prepare() || !mine.attach())
            _exit(1);
        mine.watch(tgid, fd, inode, true);
        const SourceState state = mine.states().at(0);
        self.say(state.state == CW_SOURCE_DEGRADED && mine.n_watched() == 0 &&
                         state.reason.find(reason) != std::string::npos &&
                         state.reason.find("Fix: run as root") != std::string::npos
                     ? 1
                     : 0);
        self.wait_for_word();
    });
    return looker.next() == 1;
}

TEST_F(RootSockets, WhatIsNotPermittedIsSaid) {
    for (const bool is_own : {false, true}) {
        Helper helper([&](Helper &self) {
            if (unshare(CLONE_NEWNET) != 0 || !raise_loopback() ||
                (is_own && (!become_nobody() || prctl(PR_SET_DUMPABLE, 1) != 0)))
                _exit(1);
            Listener listener;
            TcpPair pair(listener);
            self.say(pair.connected.number());
            self.wait_for_word();
        });
        const auto fd = static_cast<std::uint32_t>(helper.next());
        EXPECT_TRUE(nobody_says(helper.tgid(), fd,
                                is_own ? "entering the network namespace"
                                       : "network namespaces of other users' processes"));
    }
}

TEST_F(RootSockets, WithoutPrivilegesInTheOwnNamespace) {
    Helper looker([&](Helper &self) {
        SocketOptions options;
        options.interval_ns = 0;
        SocketSource mine{std::move(options)};
        if (!become_nobody() || prctl(PR_SET_DUMPABLE, 1) != 0 || !mine.prepare() || !mine.attach())
            _exit(1);
        Listener listener;
        TcpPair pair(listener);
        const auto fd = pair.connected.number();
        const auto tgid = static_cast<std::uint32_t>(getpid());
        mine.watch(tgid, fd, socket_inode(tgid, fd), true);
        TcpRecords records;
        sample_into(records, mine);
        move_in_helper(pair.connected, pair.accepted, 4321);
        pair.connected.reset();
        pair.accepted.reset();
        for (int i = 0; i < 100 && !records.has_end_of(fd); ++i) {
            usleep(10'000);
            sample_into(records, mine);
        }
        const auto last = records.last_of(fd);
        self.say(last ? last->flags & END_FLAGS : 0);
        self.say(last ? last->acked_bytes : 0);
        self.wait_for_word();
    });
    EXPECT_EQ(looker.next(), END_FLAGS);
    EXPECT_EQ(looker.next(), 4321U);
}

// Netlink messages about sockets that found a full buffer, in the network namespace of a process.
std::uint64_t n_dropped(std::uint32_t tgid) {
    std::ifstream lines(fmt::format("/proc/{}/net/netlink", tgid));
    std::uint64_t sum = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::array<std::string, 8> before; // sk Eth Pid Groups Rmem Wmem Dump Locks
        for (std::string &field : before)
            fields >> field;
        std::uint64_t drops = 0;
        if (fields >> drops && before[1] == "4")
            sum += drops;
    }
    return sum;
}

TEST_F(RootSockets, MoreEndsThanTheKernelCanTellOf) {
    constexpr std::size_t PAIRS = 25'000; // the buffer holds 26,000 notices, on some kernels more
    Helper helper([&](Helper &self) {
        if (unshare(CLONE_NEWNET) != 0 || !raise_loopback())
            _exit(1);
        Listener listener;
        auto pair = std::make_unique<TcpPair>(listener);
        self.say(pair->connected.number());
        self.wait_for_word();
        TcpPair::move(pair->connected, pair->accepted, 1000);
        self.say(0);
        self.wait_for_word();
        for (std::size_t i = 0; i < PAIRS; ++i) {
            const TcpPair other(listener);
            if (!other.is_there())
                _exit(1);
            const linger at_once{1, 0}; // no TIME_WAIT
            setsockopt(other.connected.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        }
        TcpPair::move(pair->connected, pair->accepted, 500);
        pair.reset();
        self.say(0);
        self.wait_for_word();
    });
    const auto fd = static_cast<std::uint32_t>(helper.next());
    watch(helper, fd, true);
    helper.go();
    helper.next();
    TcpRecords records;
    sample_into(records, *source);
    ASSERT_EQ(records.all.size(), 1U);
    helper.go();
    helper.next();
    // The kernel makes its notices behind.
    std::uint64_t dropped = 0;
    for (int i = 0, same = 0; i < 600 && same < 5; ++i) {
        usleep(100'000);
        const std::uint64_t now = n_dropped(helper.tgid());
        same = now != 0 && now == dropped ? same + 1 : 0;
        dropped = now;
    }
    ASSERT_GT(dropped, 0U);
    records = sample_until([&](const TcpRecords &seen) { return seen.has_end_of(fd); });
    ASSERT_TRUE(records.last_of(fd));
    EXPECT_EQ(records.last_of(fd)->flags & END_FLAGS,
              static_cast<std::uint32_t>(CW_TCP_SOCKET_GONE));
    EXPECT_EQ(records.last_of(fd)->acked_bytes, 1000U);
    EXPECT_NE(reasons().find("more sockets end here"), std::string::npos) << reasons();
}

// Two namespaces with one between them, which forwards through queues that are too short.
class LossySockets : public RootSockets {
protected:
    void SetUp() override {
        RootSockets::SetUp();
        if (IsSkipped())
            return;
        name_ = fmt::format("cwsock{}", getpid());
        const auto in = [&](char which) { return fmt::format("ip -n {}{} ", name_, which); };
        bool made = true;
        for (const char which : {'a', 'r', 'b'})
            made = made && run(fmt::format("ip netns add {}{}", name_, which));
        made = made &&
               run(in('a') + fmt::format("link add x type veth peer name xa netns {}r", name_)) &&
               run(in('b') + fmt::format("link add x type veth peer name xb netns {}r", name_)) &&
               run(in('a') + "addr add 10.9.1.1/24 dev x") &&
               run(in('b') + "addr add 10.9.2.1/24 dev x") &&
               run(in('r') + "addr add 10.9.1.2/24 dev xa") &&
               run(in('r') + "addr add 10.9.2.2/24 dev xb") && run(in('a') + "link set x up") &&
               run(in('b') + "link set x up") && run(in('r') + "link set xa up") &&
               run(in('r') + "link set xb up") && run(in('a') + "route add default via 10.9.1.2") &&
               run(in('b') + "route add default via 10.9.2.2") &&
               run(fmt::format("ip netns exec {}r sysctl -w net.ipv4.ip_forward=1", name_));
        if (!made)
            GTEST_SKIP() << "network namespaces with veth links cannot be made here (ip, sysctl)";
    }
    void TearDown() override {
        for (const char which : {'a', 'r', 'b'})
            run(fmt::format("ip netns del {}{}", name_, which));
    }
    bool shorten_queue(char which, const char *device) const {
        return run(fmt::format("tc -n {}{} qdisc add dev {} root tbf rate 400mbit burst 20kb "
                               "limit 40kb",
                               name_, which, device));
    }
    bool enter(char which) const {
        const Fd fd(
            open(fmt::format("/run/netns/{}{}", name_, which).c_str(), O_RDONLY | O_CLOEXEC));
        return setns(fd.get(), CLONE_NEWNET) == 0;
    }
    // Sends so much from `a` to `b`, over several connections at once.
    struct Sent {
        std::uint64_t acked = 0;
        std::uint64_t received = 0;
        std::uint64_t sent_less_retransmitted = 0;
        std::uint64_t retransmitted = 0;
        std::uint64_t retransmitted_segments = 0;
        bool complete = false;
    };
    Sent transfer() {
        constexpr std::size_t CONNECTIONS = 4;
        Helper receiver([&](Helper &self) {
            if (!enter('b'))
                _exit(1);
            const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            sockaddr_in any{};
            any.sin_family = AF_INET;
            any.sin_port = htons(7777);
            if (bind(listener.get(), reinterpret_cast<sockaddr *>(&any), sizeof(any)) != 0 ||
                listen(listener.get(), 16) != 0)
                _exit(1);
            self.say(1);
            std::vector<Fd> all;
            for (std::size_t i = 0; i < CONNECTIONS; ++i) {
                all.emplace_back(accept(listener.get(), nullptr, nullptr));
                self.say(all.back().number());
            }
            std::vector<char> buffer(1 << 16);
            for (std::uint64_t left = CONNECTIONS * bytes_each; left > 0;) {
                for (const Fd &each : all) {
                    const ssize_t n = recv(each.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
                    left -= n > 0 ? static_cast<std::uint64_t>(n) : 0;
                }
            }
            self.say(1);
            self.wait_for_word();
        });
        receiver.next();
        Helper sender([&](Helper &self) {
            if (!enter('a'))
                _exit(1);
            std::vector<Fd> all;
            for (std::size_t i = 0; i < CONNECTIONS; ++i) {
                all.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                sockaddr_in to{};
                to.sin_family = AF_INET;
                to.sin_port = htons(7777);
                inet_pton(AF_INET, "10.9.2.1", &to.sin_addr);
                if (connect(all.back().get(), reinterpret_cast<sockaddr *>(&to), sizeof(to)) != 0)
                    _exit(1);
                self.say(all.back().number());
            }
            self.wait_for_word();
            std::vector<char> buffer(1 << 16);
            std::vector<std::uint64_t> left(CONNECTIONS, bytes_each);
            for (std::size_t open = CONNECTIONS; open > 0;) {
                for (std::size_t i = 0; i < CONNECTIONS; ++i) {
                    if (left[i] == 0)
                        continue;
                    const ssize_t n =
                        send(all[i].get(), buffer.data(),
                             std::min<std::uint64_t>(left[i], buffer.size()), MSG_DONTWAIT);
                    left[i] -= n > 0 ? static_cast<std::uint64_t>(n) : 0;
                    open -= left[i] == 0 ? 1 : 0;
                }
            }
            self.say(1);
            self.wait_for_word();
        });
        std::vector<std::uint32_t> sending;
        std::vector<std::uint32_t> receiving;
        for (std::size_t i = 0; i < CONNECTIONS; ++i) {
            sending.push_back(static_cast<std::uint32_t>(sender.next()));
            receiving.push_back(static_cast<std::uint32_t>(receiver.next()));
            watch(sender, sending.back(), true);
            watch(receiver, receiving.back(), false);
        }
        sender.go();
        sender.next();
        receiver.next();
        usleep(300'000); // the last acknowledgements
        TcpRecords records;
        sample_into(records, *source, true);
        sender.end();
        receiver.end();
        const TcpRecords ends =
            sample_until([&](const TcpRecords &) { return source->n_watched() == 0; });
        Sent sent;
        sent.complete = records.all.size() == 2 * CONNECTIONS && ends.all.size() >= 2 * CONNECTIONS;
        for (const cw_tcp_socket &record : records.all) {
            const bool is_sender = record.remote_port == 7777;
            const std::uint64_t payload = is_sender ? record.acked_bytes : record.received_bytes;
            EXPECT_EQ(payload, bytes_each);
            (is_sender ? sent.acked : sent.received) += payload;
            if (!is_sender)
                continue;
            sent.sent_less_retransmitted += record.sent_bytes - record.retransmitted_bytes;
            sent.retransmitted += record.retransmitted_bytes;
            sent.retransmitted_segments += record.retransmitted_segments;
        }
        for (const cw_tcp_socket &record : ends.all) {
            if ((record.flags & CW_TCP_SOCKET_GONE) == 0)
                continue;
            EXPECT_EQ(record.flags & END_FLAGS, END_FLAGS);
            EXPECT_EQ(record.remote_port == 7777 ? record.acked_bytes : record.received_bytes,
                      bytes_each);
        }
        return sent;
    }

    std::uint64_t bytes_each = 20'000'003;
    std::string name_;
};

TEST_F(LossySockets, RetransmissionsAreInNoPayload) {
    if (!shorten_queue('r', "xb"))
        GTEST_SKIP() << "no tc with tbf here";
    const Sent sent = transfer();
    ASSERT_TRUE(sent.complete) << reasons();
    EXPECT_EQ(sent.acked, 4 * bytes_each);
    EXPECT_EQ(sent.received, 4 * bytes_each);
    EXPECT_EQ(sent.sent_less_retransmitted, 4 * bytes_each);
    EXPECT_GT(sent.retransmitted, 0U);
    EXPECT_GT(sent.retransmitted_segments, 0U);
    std::printf("retransmitted: %lu bytes in %lu segments of %lu bytes\n", sent.retransmitted,
                sent.retransmitted_segments, sent.acked);
}

TEST_F(LossySockets, RefusedByTheSendersOwnQueue) {
    if (!shorten_queue('a', "x"))
        GTEST_SKIP() << "no tc with tbf here";
    const Sent sent = transfer();
    ASSERT_TRUE(sent.complete) << reasons();
    EXPECT_EQ(sent.acked, 4 * bytes_each);
    EXPECT_EQ(sent.received, 4 * bytes_each);
    EXPECT_GE(sent.sent_less_retransmitted, 4 * bytes_each);
    std::printf("sent, not retransmitted, and more than the payload: %lu bytes\n",
                sent.sent_less_retransmitted - 4 * bytes_each);
}

// CPU time of this process for one sample, the least of several.
double sample_ms(SocketSource &source, std::size_t expected) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
        TcpRecords records;
        const std::uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        sample_into(records, source, i == 0);
        const auto ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin;
        if (i == 0) {
            EXPECT_EQ(records.all.size(), expected);
        } else {
            least = std::min(least, static_cast<double>(ns) / 1e6);
        }
    }
    return least;
}

// Connections of the calling process to itself, and a word when they are there.
std::vector<TcpPair> many_pairs(Listener &listener, std::size_t n) {
    std::vector<TcpPair> pairs;
    for (std::size_t i = 0; i < n; ++i) {
        pairs.emplace_back(listener);
        if (!pairs.back().is_there())
            _exit(1);
    }
    return pairs;
}

TEST_F(RootSockets, CostOfAThousand) {
    // A process may have so many files open.
    constexpr std::size_t PAIRS_OF_A_PROCESS = 5'000;
    const std::size_t n_others = getenv("COLLWIRE_FULL") != nullptr ? 10 : 1;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * PAIRS_OF_A_PROCESS + 100)
        GTEST_SKIP() << "not so many files may be open: " << limit.rlim_cur;
    // One namespace with 1,000 sockets, then with many that nobody asked for.
    Helper helper([&](Helper &self) {
        if (unshare(CLONE_NEWNET) != 0 || !raise_loopback())
            _exit(1);
        Listener listener;
        const auto pairs = many_pairs(listener, 500);
        for (const TcpPair &pair : pairs) {
            self.say(pair.connected.number());
            self.say(pair.accepted.number());
        }
        self.wait_for_word();
        std::vector<std::unique_ptr<Helper>> others;
        for (std::size_t i = 0; i < n_others; ++i) {
            others.push_back(std::make_unique<Helper>([&](Helper &other) {
                Listener its_own;
                const auto more = many_pairs(its_own, PAIRS_OF_A_PROCESS);
                other.say(0);
                other.wait_for_word();
            }));
            others.back()->next();
        }
        self.say(0);
        self.wait_for_word();
    });
    const std::uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 1000; ++i)
        watch(helper, static_cast<std::uint32_t>(helper.next()), i % 2 == 0);
    TcpRecords first;
    sample_into(first, *source);
    const double adopted_ms = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin) / 1e6;
    ASSERT_EQ(first.all.size(), 1000U) << reasons();
    const double alone_ms = sample_ms(*source, 1000);
    helper.go();
    helper.next();
    const double among_ms = sample_ms(*source, 1000);
    auto diag_fd =
        Fd(open(fmt::format("/proc/{}/ns/net", helper.tgid()).c_str(), O_RDONLY | O_CLOEXEC));
    auto diag = SockDiag::open(diag_fd.get());
    ASSERT_TRUE(diag) << diag.failure().message;
    std::size_t n = 0;
    const std::uint64_t list_begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    ASSERT_TRUE(diag->list(AF_INET, [&](const TcpSocket &) { ++n; }));
    const double list_ms =
        static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - list_begin) / 1e6;
    EXPECT_EQ(n, 1000 + n_others * 2 * PAIRS_OF_A_PROCESS);
    std::printf("1,000 sockets: found in %.2f ms, a sample %.2f ms; among %zu sockets %.2f ms; a "
                "list of these %.2f ms\n",
                adopted_ms, alone_ms, n, among_ms, list_ms);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(alone_ms, 5.0);
    EXPECT_LT(among_ms, 5.0);
#endif
}

} // namespace
} // namespace collwire
