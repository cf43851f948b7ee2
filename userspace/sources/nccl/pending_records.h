// SPDX-License-Identifier: Apache-2.0
// Records that wait for the next sample.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "collwire/record.h"
#include "userspace/source/source.h"

namespace collwire::sources {

using RecordBytes = std::vector<std::byte>;

template <typename Record> RecordBytes bytes_of_record(const Record &record) {
    const auto *begin = reinterpret_cast<const std::byte *>(&record);
    return {begin, begin + sizeof(record)};
}

inline void append(source::RecordSink &sink, const RecordBytes &record) {
    sink.append(*reinterpret_cast<const cw_header *>(record.data()));
}

class PendingRecords {
public:
    template <typename Record> void add(const Record &record) {
        records_.push_back(bytes_of_record(record));
    }
    void add_bytes(RecordBytes record) { records_.push_back(std::move(record)); }
    void append_to(source::RecordSink &sink) const {
        for (const RecordBytes &record : records_)
            append(sink, record);
    }
    void clear() { records_.clear(); }

private:
    std::vector<RecordBytes> records_;
};

} // namespace collwire::sources
