// SPDX-License-Identifier: Apache-2.0
// The sources of one recording, the maps that they share, and the ring buffer that they write to.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "collwire/record.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/hooks.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/record/options.h"
#include "userspace/record/preamble.h"

namespace collwire::record {

class RecordSession {
public:
    using Callback = std::function<void(const cw_header &)>;

    // Called for every record of the ring buffer, before the sources see it.
    void on_record(Callback callback) { callback_ = std::move(callback); }

    // Decides what can be recorded here, loads it, places nothing. Not permitted and unsupported
    // machines are errors that say what still works.
    Result<void> prepare(const RecordOptions &options);
    // Places everything. Nothing is counted yet.
    Result<void> attach();
    // From now on everything is, everywhere at once. Returns since when.
    Result<std::uint64_t> begin();
    // Hands over what the ring buffers hold, when no more comes: after detach(). What they do not
    // give counts as lost.
    void consume_last();
    // Hands over a part of it; whether there may be more. Short enough that a caller who asks for
    // the next part again and again gets to its other work in between.
    bool consume_some();
    // The last moment of the recording: nothing is counted, and nothing told of, any more. Returns
    // when that was.
    std::uint64_t end();
    void detach();

    [[nodiscard]] const Sources &sources() const { return sources_; }
    [[nodiscard]] int ring_fd() const { return ring_ ? ring_->fd() : -1; }
    // Of the shared table and of every source.
    [[nodiscard]] std::vector<source::LossCount> losses() const;
    // enum cw_node_flags: what is counted per queue pair.
    [[nodiscard]] std::uint32_t node_flags() const;

private:
    Result<void> prepare_kernel_sources(const RecordOptions &options);
    Result<void> add_kernel_sources(const RecordOptions &options);
    Result<void> add_rdma_sources(const RecordOptions &options, loader::HookMode mode, bool filter);
    Result<void> add_posts(const RecordOptions &options);
    [[nodiscard]] std::unique_ptr<source::Source> make_posts(const RecordOptions &options) const;
    // Prepares it, too.
    Result<void> add(std::unique_ptr<source::Source> source);
    // Whether there is such a source, and it has not said that it cannot work here.
    [[nodiscard]] bool works(std::string_view name) const;

    RecordOptions options_;
    Callback callback_;
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<loader::EventRing> ring_;
    Sources sources_;
    std::function<void()> look_at_qps_; // for errors; empty: no queue pairs are recorded
    bool is_ending_ = false;
    std::uint64_t unread_records_ = 0;
};

} // namespace collwire::record
