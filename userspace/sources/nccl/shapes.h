// SPDX-License-Identifier: Apache-2.0
// The shapes of launches: their tasks and operations. The BPF programs emit each shape once. A
// later segment of the capture gets a shape again with its first launch of that shape, and only
// then: jobs with changing sizes have a new shape for each launch. A shape's hash includes the
// communicator's generation, so unused shapes only age.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "userspace/source/source.h"

namespace collwire::sources {

class NcclShapes {
public:
    static constexpr std::size_t MAX_BYTES = 32U << 20U; // of all processes together

    explicit NcclShapes(std::size_t max_bytes = MAX_BYTES) : max_bytes_(max_bytes) {}

    // Emitted by the BPF programs: part of the current segment.
    void add(const cw_nccl_shape_task &record);
    void add(const cw_nccl_shape_ops &record);
    // A launch of this shape is in the current segment.
    void use(std::uint32_t tgid, std::uint64_t shape);
    // Appends the shapes that launches of this segment have and the segment lacks.
    void append(source::RecordSink &sink);
    // All shapes are in earlier segments from here on.
    void begin_segment() { ++segment_; }
    // Launches whose segment lacks their shape: it was dropped before.
    [[nodiscard]] std::uint64_t lost() const { return lost_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    struct Key {
        std::uint32_t tgid = 0;
        std::uint64_t shape = 0;
        friend auto operator<=>(const Key &, const Key &) = default;
    };
    struct Shape {
        Key key;
        std::vector<cw_nccl_shape_task> tasks; // by index
        std::vector<cw_nccl_shape_ops> ops;    // by the first one in it
        std::uint64_t segment = 0;             // the last one that it is in
        std::uint64_t waiting = 0;             // launches of this segment that wait for it
        bool is_cut = false;                   // its records were dropped
    };
    using Shapes = std::list<Shape>;

    static std::size_t bytes_of(const Shape &shape);
    Shape &touch(const Key &key);
    template <typename Record, typename Place>
    void add(std::vector<Record> Shape::*records, const Record &record, Place place);
    void cut_oldest();

    std::size_t max_bytes_;
    std::size_t bytes_ = 0;
    Shapes kept_; // the most recently used first
    Shapes cut_;  // the same
    std::map<Key, Shapes::iterator> by_key_;
    std::vector<Key> due_;
    std::uint64_t segment_ = 0;
    std::uint64_t lost_ = 0;
};

} // namespace collwire::sources
