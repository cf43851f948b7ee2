// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/slice_schedule.h"

namespace collwire::sources {

PostsCounted SliceSchedule::at(std::uint64_t now_ns, bool may_pause) {
    if (!may_pause || times_.on_ns == 0) {
        counted_ = PostsCounted::All;
        due_ns_ = 0;
        return counted_;
    }
    if (counted_ != PostsCounted::All && now_ns < due_ns_)
        return counted_;
    if (counted_ == PostsCounted::Slice) {
        counted_ = PostsCounted::Paused;
        due_ns_ = slice_ns_ + times_.period_ns;
        if (due_ns_ <= now_ns) // the recorder stood still
            due_ns_ = now_ns + times_.period_ns - times_.on_ns;
    } else {
        counted_ = PostsCounted::Slice;
        slice_ns_ = now_ns;
        due_ns_ = now_ns + times_.on_ns;
    }
    return counted_;
}

void SliceSchedule::placed(std::uint64_t now_ns) {
    if (counted_ == PostsCounted::Slice)
        due_ns_ = now_ns + times_.on_ns;
}

} // namespace collwire::sources
