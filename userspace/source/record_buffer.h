// SPDX-License-Identifier: Apache-2.0
// A buffer of records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collwire/record.h"
#include "userspace/source/source.h"

namespace collwire::source {

class RecordBuffer : public RecordSink {
public:
    void append(const cw_header &record) override {
        const auto *begin = reinterpret_cast<const std::byte *>(&record);
        bytes_.insert(bytes_.end(), begin, begin + record.length_bytes);
    }
    // Lowers later record times to this one.
    void end_at(std::uint64_t time_ns) {
        for_each([time_ns](cw_header &record) {
            if (record.time_ns > time_ns)
                record.time_ns = time_ns;
        });
    }
    // Passes each record to a function of `const cw_header &`; the buffer is empty afterwards.
    template <typename Take> void hand_over(Take take) {
        for_each([&take](const cw_header &record) { take(record); });
        bytes_.clear();
    }

private:
    // Records are multiples of 8 bytes, so each stays aligned.
    template <typename Visit> void for_each(Visit visit) {
        for (std::size_t at = 0; at < bytes_.size();) {
            auto &record = *reinterpret_cast<cw_header *>(bytes_.data() + at);
            at += record.length_bytes;
            visit(record);
        }
    }

    std::vector<std::byte> bytes_;
};

} // namespace collwire::source
