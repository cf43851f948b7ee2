// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/xid_source.h"

#include <utility>

#include "base/clock.h"

namespace collwire::sources {

Result<void> XidSource::prepare() {
    if (auto opened = log_.open(options_.log); !opened)
        failure_ = opened.failure().message;
    return {};
}

// What the log already has is read here, so that what comes later is of the recording.
Result<void> XidSource::attach() {
    read();
    if (errors_.size() > options_.most_before)
        errors_.erase(errors_.begin(),
                      errors_.end() - static_cast<std::ptrdiff_t>(options_.most_before));
    return {};
}

void XidSource::read() {
    if (!log_.is_open())
        return;
    log_.read(errors_, gaps_);
    read_ns_ = monotonic_ns();
}

std::uint64_t XidSource::due_ns() const {
    return read_ns_ == 0 ? 0 : read_ns_ + options_.read_ns;
}

void XidSource::on_due() {
    if (read_ns_ != 0 && monotonic_ns() >= due_ns())
        read();
}

std::vector<source::SourceState> XidSource::states() const {
    if (failure_.empty())
        return {{CW_SOURCE_ON, "", ~0U}};
    return {{CW_SOURCE_UNAVAILABLE, failure_, ~0U}};
}

void XidSource::sample(source::RecordSink &sink, bool) {
    if (read_ns_ != 0)
        read();
    for (const cw_xid &error : std::exchange(errors_, {}))
        sink.append(error.header);
    for (const cw_nvlink_gap &gap : std::exchange(gaps_, {}))
        sink.append(gap.header);
}

} // namespace collwire::sources
