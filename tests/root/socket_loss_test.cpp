// SPDX-License-Identifier: Apache-2.0
// Sockets over links that lose frames.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "collwire/socket_records.h"
#include "tests/root/sockets_fixture.h"

namespace collwire {
namespace {

using namespace collwire::test;

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
            for (const Fd &each : all)
                wait_until_acknowledged(each);
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

} // namespace
} // namespace collwire
