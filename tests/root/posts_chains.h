// SPDX-License-Identifier: Apache-2.0
// Chains of work requests that a child posts, and what they have to count to.
#pragma once

#include "collwire/post_records.h"
#include "tests/root/posts_fixture.h"

namespace collwire::test {

inline constexpr std::uint32_t OPCODE_WRITE = 0, OPCODE_WRITE_IMM = 1, OPCODE_SEND = 2,
                               OPCODE_READ = 4, OPCODE_FETCH_ADD = 6, OPCODE_LOCAL_INV = 7,
                               OPCODE_TSO = 10;

struct Request {
    std::uint32_t opcode;
    std::vector<std::uint32_t> lengths;
    std::uint32_t send_flags = 0;
    bool stale_list = false; // num_sge is 0, the list's address is not
};

// Chains of one post each.
inline const std::vector<std::vector<Request>> CHAINS = {
    {{OPCODE_WRITE, {65536}}, {OPCODE_WRITE_IMM, {}}},
    {{OPCODE_WRITE_IMM, {4097}}},
    {{OPCODE_SEND, {1, 2, 3}}, {OPCODE_SEND, {256}}, {OPCODE_SEND, {257}}},
    {{OPCODE_READ, {1000000}}},
    {{OPCODE_FETCH_ADD, {8}}, {OPCODE_LOCAL_INV, {}}},
    {{OPCODE_WRITE, {64}, 8 /* inline */}},
    {{OPCODE_WRITE_IMM, {}, 0, true}},
    {{OPCODE_TSO, {100}}, {OPCODE_WRITE, {0}}, {OPCODE_WRITE, {0, 5}}},
};

inline void post_chain(ChildState &state, fake_qp &qp, const std::vector<Request> &chain) {
    std::vector<fake_wr> wrs(chain.size());
    std::vector<std::vector<fake_sge>> lists(chain.size());
    for (std::size_t i = 0; i < chain.size(); ++i) {
        for (const std::uint32_t length : chain[i].lengths)
            lists[i].push_back({reinterpret_cast<std::uint64_t>(state.data.data()), length, 1});
        wrs[i].next = i + 1 < chain.size() ? &wrs[i + 1] : nullptr;
        wrs[i].num_sge = static_cast<std::int32_t>(lists[i].size());
        if (chain[i].stale_list)
            lists[i].push_back({16, 12345, 1});
        wrs[i].sg_list = lists[i].data();
        wrs[i].opcode = chain[i].opcode;
        wrs[i].send_flags = chain[i].send_flags;
    }
    state.post(qp, wrs.data());
}

inline std::uint64_t post_all_chains(ChildState &state, std::uint64_t qp_index) {
    for (const auto &chain : CHAINS)
        post_chain(state, *state.qps[qp_index], chain);
    return state.qps[qp_index]->posts;
}

// The counts again, written the slow way.
inline cw_post_counters expected(const std::vector<std::vector<Request>> &chains) {
    cw_post_counters sum{};
    const std::map<std::uint32_t, unsigned> classes = {
        {0, CW_POST_WRITE},  {1, CW_POST_WRITE_IMM}, {2, CW_POST_SEND},  {4, CW_POST_READ},
        {6, CW_POST_ATOMIC}, {7, CW_POST_LOCAL},     {10, CW_POST_OTHER}};
    for (const auto &chain : chains) {
        sum.posts += 1;
        for (const Request &request : chain) {
            const unsigned post_class = classes.at(request.opcode);
            cw_post_class_counters &c = sum.classes[post_class];
            std::uint64_t bytes = 0;
            for (const auto length : request.lengths)
                bytes += length;
            c.wrs += 1;
            c.zero_length_wrs += bytes == 0 ? 1 : 0;
            c.bytes += bytes;
            c.pad_bytes += bytes % 4 == 0 ? 0 : 4 - bytes % 4;
            if (post_class == CW_POST_LOCAL)
                continue;
            for (unsigned mtu = 0; mtu < CW_MTU_CLASSES; ++mtu) {
                std::uint64_t left = bytes;
                std::uint64_t packets = 1;
                for (; left > (256u << mtu); left -= 256u << mtu)
                    ++packets;
                c.packets[mtu] += packets;
                if (post_class == CW_POST_READ && packets > 1)
                    sum.multi_packet_reads[mtu] += 1;
            }
        }
    }
    return sum;
}

inline void expect_equal(cw_post_counters have, const cw_post_counters &want) {
    EXPECT_NE(have.first_ns, 0u);
    EXPECT_GE(have.last_ns, have.first_ns);
    have.first_ns = have.last_ns = 0;
    EXPECT_EQ(have.posts, want.posts);
    EXPECT_EQ(have.fault_posts, want.fault_posts);
    EXPECT_EQ(have.truncated_posts, want.truncated_posts);
    EXPECT_EQ(have.aborted_wrs, want.aborted_wrs);
    for (unsigned i = 0; i < CW_POST_CLASSES; ++i) {
        EXPECT_EQ(have.classes[i].wrs, want.classes[i].wrs) << "class " << i;
        EXPECT_EQ(have.classes[i].bytes, want.classes[i].bytes) << "class " << i;
    }
    EXPECT_EQ(std::memcmp(&have, &want, sizeof have), 0);
}

inline std::uint64_t total_wrs(const cw_post_counters &counters) {
    std::uint64_t sum = 0;
    for (const auto &of_class : counters.classes)
        sum += of_class.wrs;
    return sum;
}

inline std::uint64_t total_bytes(const cw_post_counters &counters) {
    std::uint64_t sum = 0;
    for (const auto &of_class : counters.classes)
        sum += of_class.bytes;
    return sum;
}

inline std::uint64_t make_qp(ChildState &state, std::uint64_t qpn) {
    return reinterpret_cast<std::uint64_t>(&state.add_qp(static_cast<std::uint32_t>(qpn), false));
}

inline std::uint64_t ignore_chains(ChildState &state, std::uint64_t) {
    return state.qps[0]->ignore_chain = 1;
}

} // namespace collwire::test
