// SPDX-License-Identifier: Apache-2.0
// What launches look like. The programs tell of each shape once; a later segment of the capture
// gets it again with the first launch in it that looks like that, and not otherwise: jobs whose
// sizes change have a new shape for each launch. The hash of a shape is of its communicator's life,
// too: what is no longer used only grows old.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "userspace/source/source.h"

namespace collwire {

class NcclShapes {
public:
    static constexpr std::size_t MAX_BYTES = 32U << 20U; // of all processes together

    explicit NcclShapes(std::size_t max_bytes = MAX_BYTES) : max_bytes_(max_bytes) {}

    // Told by the programs: it is in the segment that is being written.
    void keep(const cw_nccl_shape_task &record);
    void keep(const cw_nccl_shape_ops &record);
    // A launch that is in this segment looks like that.
    void use(std::uint32_t tgid, std::uint64_t shape);
    // What launches of this segment look like and is not in it yet.
    void append(RecordSink &sink);
    // What was told of is in an earlier segment from now on.
    void begin_segment() { ++segment_; }
    // Launches whose segment does not have what they look like: it was not kept for so long.
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
        std::uint64_t waiting = 0;             // launches of this segment that it is due for
        bool is_cut = false;                   // its records are no longer kept
    };
    using Shapes = std::list<Shape>;

    static std::size_t bytes_of(const Shape &shape);
    Shape &touch(const Key &key);
    template <typename Record, typename Place>
    void keep(std::vector<Record> Shape::*records, const Record &record, Place place);
    void cut_oldest();

    std::size_t max_bytes_;
    std::size_t bytes_ = 0;
    Shapes kept_; // the one used last is the first
    Shapes cut_;  // the same
    std::map<Key, Shapes::iterator> by_key_;
    std::vector<Key> due_;
    std::uint64_t segment_ = 0;
    std::uint64_t lost_ = 0;
};

} // namespace collwire
