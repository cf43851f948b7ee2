// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "collwire/wire_records.h"
#include "collwire/wire_sequence.h"

namespace {

constexpr __u8 send_only = 0x04;
constexpr __u8 write_middle = 0x07;
constexpr __u8 read_request = CW_BTH_READ_REQUEST;
constexpr __u8 response_first = CW_BTH_READ_RESPONSE_FIRST;
constexpr __u8 response_middle = CW_BTH_READ_RESPONSE_MIDDLE;
constexpr __u8 response_last = CW_BTH_READ_RESPONSE_LAST;
constexpr __u8 response_only = CW_BTH_READ_RESPONSE_ONLY;
constexpr __u8 ack = CW_BTH_ACK;

struct Sequences : cw_wire_sequences {
    Sequences() : cw_wire_sequences() {}
    cw_wire_class tx(__u8 opcode, __u32 psn, __u32 n = 1) {
        return cw_sequence_tx(this, opcode, psn, n);
    }
    cw_wire_class rx_request(__u8 opcode, __u32 psn, __u32 n = 1, __s64 kernel_next = -1) {
        return cw_sequence_rx_request(this, opcode, psn, n, start, kernel_next, &lost);
    }
    cw_wire_class rx_response(__u8 opcode, __u32 psn, __s64 kernel_next = -1) {
        return cw_sequence_rx_response(this, opcode, psn, kernel_next, &lost);
    }
    __u32 start = 100;
    int lost = 0;
};

TEST(WireSequence, RepeatedPsnIsARetransmission) {
    Sequences s;
    EXPECT_EQ(s.tx(write_middle, 0xfffffe), CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(write_middle, 0xffffff), CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(write_middle, 0), CW_WIRE_REQUEST) << "round the circle";
    EXPECT_EQ(s.tx(write_middle, 0xffffff), CW_WIRE_RETRANSMIT);
    EXPECT_EQ(s.tx(write_middle, 0), CW_WIRE_RETRANSMIT);
    EXPECT_EQ(s.tx(write_middle, 1), CW_WIRE_REQUEST);
}

TEST(WireSequence, AReadTakesUpThePsnsOfItsResponses) {
    Sequences s;
    EXPECT_EQ(s.tx(read_request, 10, 4), CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(read_request, 12, 2), CW_WIRE_RETRANSMIT) << "the rest of it asked for again";
    EXPECT_EQ(s.tx(send_only, 14), CW_WIRE_REQUEST);
}

TEST(WireSequence, ResponsesHaveASequenceOfTheirOwn) {
    Sequences s;
    EXPECT_EQ(s.tx(send_only, 500), CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(response_first, 10), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.tx(response_last, 11), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.tx(response_first, 10), CW_WIRE_RETRANSMIT);
    EXPECT_EQ(s.tx(ack, 3), CW_WIRE_ACK) << "an ACK is never a retransmission";
    EXPECT_EQ(s.tx(response_only, 12), CW_WIRE_RESPONSE);
}

TEST(WireSequence, DroppedFrameIsNotARetransmissionLater) {
    Sequences s;
    EXPECT_EQ(s.tx(read_request, 10, 4), CW_WIRE_REQUEST);
    cw_sequence_tx_failed(&s, read_request, 10, CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(read_request, 10, 4), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_response(response_first, 10), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.read_tail, s.read_head) << "one request, not two";
}

TEST(WireSequence, DatagramsAreNeverRepeated) {
    Sequences s;
    EXPECT_EQ(s.tx(0x64, 5), CW_WIRE_REQUEST);
    EXPECT_EQ(s.tx(0x64, 5), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(0x64, 5), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(0x64, 1), CW_WIRE_REQUEST);
}

TEST(WireSequence, TheResponderTakesTheNextPsnOnly) {
    Sequences s;
    EXPECT_EQ(s.rx_request(write_middle, 101), CW_WIRE_RETRANSMIT) << "100 was lost";
    EXPECT_EQ(s.rx_request(write_middle, 100), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(write_middle, 101), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(write_middle, 101), CW_WIRE_RETRANSMIT);
    EXPECT_EQ(s.rx_request(read_request, 102, 10), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(send_only, 112), CW_WIRE_REQUEST);
    EXPECT_EQ(s.lost, 0);
}

TEST(WireSequence, FrameSeenByTheKernelOnlyIsALoss) {
    Sequences s;
    EXPECT_EQ(s.rx_request(write_middle, 100), CW_WIRE_REQUEST);
    EXPECT_EQ(s.rx_request(write_middle, 105, 1, 105), CW_WIRE_REQUEST);
    EXPECT_EQ(s.lost, 1);
    EXPECT_EQ(s.rx_request(write_middle, 106, 1, 105), CW_WIRE_REQUEST) << "a backlog is none";
    EXPECT_EQ(s.rx_request(write_middle, 108, 1, 107), CW_WIRE_RETRANSMIT);
}

TEST(WireSequence, ResponsesCountOnceInTheOrderOfTheRequests) {
    Sequences s;
    s.tx(read_request, 10, 3);
    s.tx(send_only, 13);
    s.tx(read_request, 14, 1);
    s.tx(read_request, 15, 1);
    EXPECT_EQ(s.rx_response(response_first, 10), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_last, 12), CW_WIRE_RETRANSMIT) << "11 was lost";
    EXPECT_EQ(s.rx_response(response_only, 14), CW_WIRE_RETRANSMIT);
    s.tx(read_request, 11, 2);
    EXPECT_EQ(s.rx_response(response_first, 11), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_last, 12), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(ack, 13), CW_WIRE_ACK);
    EXPECT_EQ(s.rx_response(response_only, 15), CW_WIRE_RETRANSMIT) << "14 was lost";
    EXPECT_EQ(s.rx_response(response_only, 14), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_only, 14), CW_WIRE_RETRANSMIT);
    EXPECT_EQ(s.rx_response(response_only, 15), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.lost, 0);
}

TEST(WireSequence, ResponsesToRequestsFromBeforeCount) {
    Sequences s;
    EXPECT_EQ(s.rx_response(response_middle, 50), CW_WIRE_RESPONSE);
    s.tx(read_request, 60, 1);
    EXPECT_EQ(s.rx_response(response_last, 51), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_only, 52), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_only, 60), CW_WIRE_RESPONSE);
    EXPECT_EQ(s.rx_response(response_only, 52), CW_WIRE_RETRANSMIT);
}

TEST(WireSequence, MoreReadsThanFitDoNotStopTheCount) {
    Sequences s;
    for (__u32 i = 0; i < 2 * CW_MAX_READS; ++i)
        s.tx(read_request, i, 1);
    __u64 taken = 0;
    for (__u32 i = 0; i < 2 * CW_MAX_READS; ++i)
        taken += s.rx_response(response_only, i) == CW_WIRE_RESPONSE;
    EXPECT_EQ(taken, 2u * CW_MAX_READS);
}

// A sender that goes back and a receiver that takes the next PSN only, as rxe has it, over a line
// that loses, in both directions. Whatever happens, each PSN counts once at each end.
class LossyLine : public testing::TestWithParam<unsigned> {};

TEST_P(LossyLine, EachPsnCountsOnce) {
    std::mt19937 random(GetParam());
    std::bernoulli_distribution lose(0.05);
    constexpr __u32 n_messages = 3000;
    Sequences sender;
    Sequences receiver;
    const __u32 base = (0xffffff - 1000 + GetParam()) & CW_PSN_MASK;
    receiver.start = base;
    std::uint64_t tx_new = 0;
    std::uint64_t rx_new = 0;
    __u32 expected = 0; // what the receiver takes next, counted from base
    for (__u32 next = 0; expected < n_messages;) {
        const __u32 window = std::min(next + 1 + static_cast<__u32>(random() % 16), n_messages);
        for (__u32 i = next; i < window; ++i) {
            const auto psn = cw_psn_add(base, i);
            tx_new += sender.tx(write_middle, psn) == CW_WIRE_REQUEST;
            if (lose(random))
                continue;
            const __s64 kernel_next = GetParam() % 2 ? __s64{cw_psn_add(base, expected)} : -1;
            rx_new += receiver.rx_request(write_middle, psn, 1, kernel_next) == CW_WIRE_REQUEST;
            if (i == expected)
                ++expected;
        }
        next = expected;
    }
    EXPECT_EQ(tx_new, n_messages);
    EXPECT_EQ(rx_new, n_messages);
    EXPECT_EQ(receiver.lost, 0);
}

TEST_P(LossyLine, EachResponseCountsOnce) {
    std::mt19937 random(GetParam());
    std::bernoulli_distribution lose(0.05);
    Sequences requester;
    Sequences responder;
    std::uint64_t tx_new = 0;
    std::uint64_t rx_new = 0;
    std::uint64_t n_responses = 0;
    __u32 psn = 0xfffff0;
    for (int read = 0; read < 500; ++read) {
        const __u32 n = 1 + static_cast<__u32>(random() % 40);
        n_responses += n;
        requester.tx(read_request, psn, n);
        for (__u32 taken = 0; taken < n;) {
            for (__u32 i = taken; i < n; ++i) {
                const bool starts = i == taken;
                const bool ends = i + 1 == n;
                const __u8 opcode = starts && ends ? response_only
                                    : starts       ? response_first
                                    : ends         ? response_last
                                                   : response_middle;
                tx_new += responder.tx(opcode, cw_psn_add(psn, i)) == CW_WIRE_RESPONSE;
                if (lose(random))
                    break;
                rx_new += requester.rx_response(opcode, cw_psn_add(psn, i)) == CW_WIRE_RESPONSE;
                taken = i + 1;
            }
            if (taken < n)
                requester.tx(read_request, cw_psn_add(psn, taken), n - taken);
        }
        psn = cw_psn_add(psn, n);
        // requests without a response in between
        for (auto i = random() % 3; i > 0; --i, psn = cw_psn_add(psn, 1))
            requester.tx(send_only, psn);
    }
    EXPECT_EQ(tx_new, n_responses);
    EXPECT_EQ(rx_new, n_responses);
    EXPECT_EQ(requester.lost, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LossyLine, testing::Range(1u, 21u));

} // namespace
