// SPDX-License-Identifier: Apache-2.0
// The sources of one recording, their shared maps and their ring buffers.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string_view>

#include "collwire/record.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/hooks.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/record/options.h"
#include "userspace/record/preamble.h"

namespace collwire::sources {
class InventorySource;
class MappingsSource;
class NcclSource;
class VerbsQpSource;
} // namespace collwire::sources

namespace collwire::record {

class RecordSession {
public:
    using Callback = std::function<void(const cw_header &)>;

    // Called for every record of the ring buffer, before the sources see it.
    void on_record(Callback callback) { callback_ = std::move(callback); }

    // Decides what can be recorded here and loads it; attaches nothing. Not permitted and
    // unsupported machines are errors that say what still works.
    Result<void> prepare(const RecordOptions &options);
    // Attaches everything. Nothing is counted yet.
    // `attached`: called whenever a source was attached, and may detach its probes.
    Result<void> attach(const std::function<void()> &attached = {});
    // Opens the gate: counting starts in all programs at once. Returns the time.
    Result<std::uint64_t> begin();
    // Passes on the rest of the ring buffers, when no more records come: after detach(). Records
    // that cannot be read count as lost.
    void consume_last();
    // Passes on a part of the ring buffers; returns whether there may be more. Short enough that a
    // caller in a loop gets to its other work in between.
    bool consume_some();
    // When a source wants on_due() to be called, in CLOCK_MONOTONIC ns; 0: never.
    [[nodiscard]] std::uint64_t due_ns() const;
    void on_due();
    // How long the recorder stood still since the last call; 0: it did not.
    [[nodiscard]] std::uint64_t take_standstill_ns();
    // Passes SIGUSR1 on to the sources.
    void on_request();
    // The recording ends soon. False: more records are on their way; call it again after
    // consume_some().
    bool finish();
    // Closes the gate, at the last moment of the recording: programs count and emit nothing more.
    // Returns the time.
    std::uint64_t end();
    void detach();

    [[nodiscard]] const Sources &sources() const { return sources_; }
    [[nodiscard]] int ring_fd() const { return ring_ ? ring_->fd() : -1; }
    // The losses of the shared table and of every source.
    [[nodiscard]] std::vector<source::LossCount> losses() const;
    // enum cw_node_flags: the kinds of bytes counted per queue pair.
    [[nodiscard]] std::uint32_t node_flags() const;

private:
    Result<void> add_nvidia_sources(const RecordOptions &options);
    Result<void> prepare_kernel_sources(const RecordOptions &options);
    Result<void> add_kernel_sources(const RecordOptions &options);
    Result<void> add_nccl_sources(const RecordOptions &options,
                                  std::function<void(const std::set<std::uint64_t> &)> rearm);
    Result<void> add_gpu_source(const RecordOptions &options,
                                std::function<void(const std::set<std::uint64_t> &)> rearm);
    Result<void> add_rdma_sources(const RecordOptions &options, loader::HookMode mode, bool filter);
    // Queue pairs, from ib_core, or from libibverbs, or both.
    Result<void> add_qp_sources(const RecordOptions &options, loader::HookMode mode, bool filter);
    Result<void> add_verbs(const RecordOptions &options);
    Result<void> add_posts(const RecordOptions &options);
    [[nodiscard]] std::unique_ptr<source::Source> make_posts(const RecordOptions &options) const;
    // Adds and prepares it.
    Result<void> add(std::unique_ptr<source::Source> source);
    // Whether there is such a source, and it can work here.
    [[nodiscard]] bool works(std::string_view name) const;
    // Whether every mapping of a file is reported, the last tick's too.
    [[nodiscard]] bool sees_mappings() const;

    RecordOptions options_;
    Callback callback_;
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<loader::EventRing> ring_;
    Sources sources_;
    sources::InventorySource *inventory_ = nullptr; // in sources_
    sources::MappingsSource *mappings_ = nullptr;   // in sources_; null: no source needs it
    sources::NcclSource *nccl_ = nullptr;           // in sources_
    sources::VerbsQpSource *verbs_ = nullptr;       // in sources_; null: not needed
    bool qps_from_verbs_ = false;                   // libibverbs' records are those of the capture
    // Reports the next mappings of files again; empty: no source reports any.
    std::function<void(const std::set<std::uint64_t> &)> rearm_mappings_;
    std::function<void()> look_at_qps_; // for errors; empty: no queue pairs are recorded
    bool is_ending_ = false;
    std::uint64_t unread_records_ = 0;
    std::uint64_t n_standstills_ = 0;
};

} // namespace collwire::record
