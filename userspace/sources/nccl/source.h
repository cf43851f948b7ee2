// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators, calls, launches and connections (bpf/nccl.bpf.c). docs/sources/nccl.md
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/record.h"
#include "userspace/source/queue_pair_path.h"
#include "userspace/sources/nccl/comm_discovery.h"
#include "userspace/sources/nccl/comm_registry.h"
#include "userspace/sources/nccl/error_watch.h"
#include "userspace/sources/nccl/libraries.h"
#include "userspace/sources/nccl/library_watch.h"
#include "userspace/sources/nccl/parameter_watch.h"
#include "userspace/sources/nccl/pending_records.h"
#include "userspace/sources/nccl/plugin_watch.h"
#include "userspace/sources/nccl/process_watch.h"
#include "userspace/sources/nccl/pxn_reader.h"
#include "userspace/sources/nccl/queue_pairs.h"
#include "userspace/sources/nccl/shapes.h"
#include "userspace/sources/nccl/steps.h"
#include "userspace/sources/nccl/unread_memory.h"

namespace collwire::sources {

struct NcclOptions {
    NcclProbes probes;
    std::vector<std::string> files; // are probed before a process maps them
    std::function<bool()> has_mapping_records = [] { return true; };          // see LibraryWatch
    std::function<void(const std::set<std::uint64_t> &)> rearm_mappings = {}; // by inode
    // For how long a library that no process maps keeps its probes.
    std::uint64_t spare_unused_ns = NcclLibraries::MINUTE_NS;
    // NCCL has an error that queue pairs may have caused.
    std::function<void()> on_error = {};
    // Called with each sample while an operation has made no step on the network for stall_ns.
    std::function<void()> on_stall = {};
    std::uint64_t stall_ns = 0;
    // Gets the connections that do not come through the ring buffer.
    std::function<void(const cw_header &)> on_connection = {};
    // Gets the other ends of the queue pairs of a connection, for processes that lack some.
    std::function<void(const source::QueuePairPath &)> on_queue_pair_path = {};
    std::function<bool(std::uint32_t tgid)> lacks_queue_pair_paths = {};
    // Gets the communicators that do not come through the ring buffer.
    std::function<void(const cw_header &)> on_discovered_comm = {};
};

// Routes records to the parts, each of which owns its state, and appends what they have to samples.
class NcclSource : public source::Source {
public:
    NcclSource(const loader::SharedMaps &maps, NcclOptions options);
    ~NcclSource() override;

    [[nodiscard]] std::string_view name() const override { return "nccl"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override;
    Result<void> attach() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    void baseline() override { steps_.poll(false); }
    void begin() override {
        unread_.fetch_all();
        comms_.read_counts();
    }
    void on_record(const cw_header &header) override;
    void sample(source::RecordSink &sink, bool everything) override;
    [[nodiscard]] std::vector<source::LossCount> losses() const override;
    void end() override;
    void detach() override;
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const override {
        return libraries_.probe_groups();
    }
    void take_off(std::string_view group, std::string reason) override;
    [[nodiscard]] std::set<std::uint32_t> recorded_processes() const override {
        return processes_.tgids();
    }
    // Those of the process's connections that were recorded so far; null: none. Valid until the
    // next record.
    [[nodiscard]] const source::NcclQueuePairs *queue_pairs_of(std::uint32_t tgid) const {
        return queue_pairs_.of(tgid);
    }

private:
    void on_comm(const cw_nccl_comm &record);
    void on_comm_end(const CommAddress &address);
    void on_connection(const CommAddress &address, const cw_nccl_connection &connection);
    void on_discovered_connection(const CommAddress &address, const cw_nccl_connection &connection);
    void add_connection(const CommAddress &address, const cw_nccl_connection &connection);
    void watch_steps(const CommAddress &address, const cw_nccl_connection &connection);
    void read_paths(const CommAddress &address, const cw_nccl_connection &connection);
    void forget_exited();

    NcclOptions options_;
    PendingRecords pending_;
    NcclLibraries libraries_;
    LibraryWatch library_watch_;
    ProcessWatch processes_{pending_};
    ParameterWatch parameters_{libraries_, pending_};
    CommRegistry comms_{libraries_, pending_};
    CommDiscovery discovery_;
    PxnReader pxn_;
    UnreadMemory unread_;
    PluginWatch plugins_;
    ErrorWatch errors_;
    NcclShapes shapes_;
    NcclSteps steps_;
    NcclQpRegistry queue_pairs_;
    std::vector<std::string> taken_off_; // why, the last first
    bool ended_ = false;
};

} // namespace collwire::sources
