// SPDX-License-Identifier: Apache-2.0
// Records of a synthetic NCCL rank that calls AllGather in a loop, with four sizes in turn, over
// one ring per channel.
#pragma once

#include <cstdint>

#include "userspace/source/source.h"

namespace collwire::trace_gen {

struct NcclRankOptions {
    std::uint32_t rank = 0;
    std::uint32_t n_ranks = 2;
    std::uint32_t channels = 1;
    std::uint32_t collectives_a_second = 4;
    std::uint32_t pid = 0;
    std::uint32_t first_qpn = 0;
    std::uint64_t pid_start_ns = 0;
};

// Packets of 1,024 B that a connection sends per second.
[[nodiscard]] std::uint64_t nccl_frames_a_second(std::uint32_t n_ranks,
                                                 std::uint32_t collectives_a_second);
[[nodiscard]] std::uint32_t nccl_send_qpn(std::uint32_t first_qpn, std::uint32_t channel);
[[nodiscard]] std::uint32_t nccl_receive_qpn(std::uint32_t first_qpn, std::uint32_t channel);

class NcclRank {
public:
    explicit NcclRank(const NcclRankOptions &options) : options_(options) {}

    // Emits the library, the communicator and its connections.
    void begin(source::RecordSink &sink, std::uint64_t time_ns) const;
    // Emits calls and launches, evenly spread over `length_ns`.
    void run(source::RecordSink &sink, std::uint64_t begin_ns, std::uint64_t length_ns);

private:
    void connection(source::RecordSink &sink, std::uint64_t time_ns, std::uint32_t channel,
                    bool send) const;
    void shape(source::RecordSink &sink, std::uint64_t time_ns, std::uint32_t size) const;
    [[nodiscard]] std::int32_t peer(bool send) const;

    NcclRankOptions options_;
    std::uint64_t launched_ = 0;
};

} // namespace collwire::trace_gen
