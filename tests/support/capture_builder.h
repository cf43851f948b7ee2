// SPDX-License-Identifier: Apache-2.0
// Builds a capture in memory, record by record, as a recorder would write it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/encoder.h"

namespace collwire::test {

// A zeroed record with its header filled in: make_record<cw_node>(CW_KIND_NODE, time_ns).
template <typename T>
[[nodiscard]] T make_record(std::uint32_t kind, std::uint64_t time_ns,
                            std::uint16_t cpu = CW_CPU_USERSPACE) {
    T record{};
    record.header.length_bytes = sizeof(T);
    record.header.kind = static_cast<std::uint16_t>(kind);
    record.header.cpu = cpu;
    record.header.time_ns = time_ns;
    return record;
}

// Text into a zero-filled field, cut to leave a terminating zero.
template <std::size_t N> void set_text(char (&field)[N], std::string_view text) {
    std::memset(field, 0, N);
    std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

class CaptureBuilder {
public:
    // Takes any struct of records.h that begins with a cw_header; returns itself, to chain.
    template <typename T> CaptureBuilder &add(const T &record) {
        EXPECT_LE(record.header.length_bytes, sizeof(T));
        return add_header(record.header);
    }
    // The same for a record of which only the header's address is known; length_bytes bytes must be
    // there.
    CaptureBuilder &add_header(const cw_header &record) {
        const auto added = encoder_.add(record);
        EXPECT_TRUE(added) << added.failure().message;
        return *this;
    }
    CaptureBuilder &add_samples(std::uint64_t read_begin_ns, std::uint64_t time_ns,
                                std::span<const cw_counter_sample> samples) {
        auto head = make_record<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, time_ns);
        head.header.length_bytes = static_cast<std::uint32_t>(sizeof(head) + samples.size_bytes());
        head.read_begin_ns = read_begin_ns;
        head.n = static_cast<std::uint32_t>(samples.size());
        // Of 64-bit words, so that the records in it are aligned.
        std::vector<std::uint64_t> record(head.header.length_bytes / sizeof(std::uint64_t));
        std::memcpy(record.data(), &head, sizeof(head));
        if (!samples.empty())
            std::memcpy(record.data() + sizeof(head) / sizeof(std::uint64_t), samples.data(),
                        samples.size_bytes());
        return add_header(*reinterpret_cast<const cw_header *>(record.data()));
    }
    CaptureBuilder &add_samples(std::uint64_t read_begin_ns, std::uint64_t time_ns,
                                std::initializer_list<cw_counter_sample> samples) {
        return add_samples(read_begin_ns, time_ns, std::span(samples.begin(), samples.size()));
    }
    CaptureBuilder &add_end(std::uint64_t time_ns, std::uint32_t reason = 0,
                            std::uint32_t exit_status = 0) {
        auto end = make_record<cw_end>(CW_KIND_END, time_ns);
        end.reason = reason;
        end.exit_status = exit_status;
        return add(end);
    }
    // Ends the block: the next record begins another one.
    CaptureBuilder &end_block() {
        if (encoder_.empty())
            return *this;
        const auto block = encoder_.encode(n_blocks_++);
        EXPECT_TRUE(block) << block.failure().message;
        bytes_.insert(bytes_.end(), block->begin(), block->end());
        block_ends_.push_back(bytes_.size());
        encoder_.clear();
        return *this;
    }
    // The whole file so far.
    [[nodiscard]] std::vector<std::byte> bytes() {
        end_block();
        return bytes_;
    }
    // Offsets just after each block.
    [[nodiscard]] const std::vector<std::size_t> &block_ends() const { return block_ends_; }

    explicit CaptureBuilder(capture::FileHeader header = {})
        : bytes_(capture::encode_file_header(header)) {}

private:
    capture::BlockEncoder encoder_;
    std::vector<std::byte> bytes_;
    std::vector<std::size_t> block_ends_;
    std::uint32_t n_blocks_ = 0;
};

} // namespace collwire::test
