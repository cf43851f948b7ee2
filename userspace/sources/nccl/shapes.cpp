// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/shapes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace collwire::sources {
namespace {

// The BPF programs forget the oldest of 16,384 shapes of each library, and emit them again.
constexpr std::size_t MAX_CUT = 65536;

} // namespace

std::size_t NcclShapes::bytes_of(const Shape &shape) {
    return sizeof(Shape) + shape.tasks.size() * sizeof(cw_nccl_shape_task) +
           shape.ops.size() * sizeof(cw_nccl_shape_ops);
}

// A launch is emitted before its shape, so the records of an unknown shape will be in this segment.
NcclShapes::Shape &NcclShapes::touch(const Key &key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
        kept_.push_front({key, {}, {}, segment_, 0, false});
        by_key_.emplace(key, kept_.begin());
        bytes_ += bytes_of(kept_.front());
        return kept_.front();
    }
    Shapes &in = found->second->is_cut ? cut_ : kept_;
    in.splice(in.begin(), in, found->second);
    return in.front();
}

template <typename Record, typename Place>
void NcclShapes::add(std::vector<Record> Shape::*records, const Record &record, Place place) {
    Shape &shape = touch({record.tgid, record.shape});
    if (shape.is_cut) { // the BPF programs forgot it, too
        kept_.splice(kept_.begin(), cut_, cut_.begin());
        shape.is_cut = false;
        shape.segment = segment_;
        bytes_ += bytes_of(shape);
    }
    auto &all = shape.*records;
    const auto at = std::ranges::lower_bound(all, record.*place, {}, place);
    if (at != all.end() && (*at).*place == record.*place) {
        *at = record;
        return;
    }
    all.insert(at, record);
    bytes_ += sizeof(Record);
    while (bytes_ > max_bytes_ && kept_.size() > 1)
        cut_oldest();
}

void NcclShapes::add(const cw_nccl_shape_task &record) {
    add(&Shape::tasks, record, &cw_nccl_shape_task::index);
}

void NcclShapes::add(const cw_nccl_shape_ops &record) {
    add(&Shape::ops, record, &cw_nccl_shape_ops::first);
}

void NcclShapes::cut_oldest() {
    Shape &oldest = kept_.back();
    bytes_ -= bytes_of(oldest);
    oldest.tasks = {};
    oldest.ops = {};
    oldest.is_cut = true;
    cut_.splice(cut_.begin(), kept_, std::prev(kept_.end()));
    if (cut_.size() > MAX_CUT) {
        by_key_.erase(cut_.back().key);
        cut_.pop_back();
    }
}

void NcclShapes::use(std::uint32_t tgid, std::uint64_t shape) {
    if (shape == 0)
        return; // unknown
    Shape &used = touch({tgid, shape});
    if (used.segment == segment_)
        return;
    if (used.waiting++ == 0)
        due_.push_back(used.key);
}

void NcclShapes::append(source::RecordSink &sink) {
    for (const Key &key : due_) {
        const auto found = by_key_.find(key);
        if (found == by_key_.end())
            continue;
        Shape &shape = *found->second;
        const std::uint64_t waiting = std::exchange(shape.waiting, 0);
        if (shape.is_cut) {
            lost_ += waiting;
            continue;
        }
        if (shape.segment == segment_)
            continue; // the BPF programs emitted it again
        shape.segment = segment_;
        for (const cw_nccl_shape_task &task : shape.tasks)
            sink.append(task.header);
        for (const cw_nccl_shape_ops &ops : shape.ops)
            sink.append(ops.header);
    }
    due_.clear();
}

} // namespace collwire::sources
