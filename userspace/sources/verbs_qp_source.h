// SPDX-License-Identifier: Apache-2.0
// The life of queue pairs, from libibverbs in the processes that use it (bpf/verbs_qp.bpf.c).
// docs/sources/verbs.md
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/recorder_records.h"
#include "collwire/verbs_qp.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"
#include "userspace/netlink/attributes.h"
#include "userspace/process/process_polls.h"
#include "userspace/source/source.h"
#include "userspace/sources/known_qps.h"
#include "userspace/sources/mapped_processes.h"
#include "userspace/sources/verbs_comparison.h"
#include "userspace/sources/verbs_libraries.h"
#include "userspace/sources/verbs_paths.h"

struct verbs_qp; // the skeleton of bpf/verbs_qp.bpf.c

namespace collwire::sources {

struct VerbsQpOptions {
    std::vector<std::uint32_t> pids; // only these processes; empty: all
    // The queue pairs of ib_core's source are recorded; this one's are compared with them.
    bool compare_only = false;
    // The devices of this node, with their addresses, as of the last sample.
    std::function<const std::vector<inventory::RdmaDevice> &()> devices;
    // Passes a record that no ring buffer had to the other sources.
    std::function<void(const cw_header &)> emit;
    // Whether CW_KIND_FILE_MAPPED records come. Without them processes are polled.
    std::function<bool()> has_mapping_records;
    // Emit the next mapping of a file with one of these numbers again.
    std::function<void(const std::set<std::uint64_t> &)> rearm_mappings;
};

class VerbsQpSource : public source::Source {
public:
    VerbsQpSource(const loader::SharedMaps &maps, VerbsQpOptions options);
    ~VerbsQpSource() override;

    [[nodiscard]] std::string_view name() const override { return "verbs"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override;
    Result<void> attach() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    void on_record(const cw_header &header) override;
    void sample(source::RecordSink &sink, bool everything) override;
    void end() override;
    void detach() override;
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const override;
    void take_off(std::string_view group, std::string reason) override;

    // The other end of a queue pair, from NCCL's memory. For those that existed before the probes.
    void take_path(const source::QueuePairPath &path);
    [[nodiscard]] bool lacks_paths(std::uint32_t tgid) const { return paths_.are_lacking(tgid); }

    // KnownQps::look_for_errors.
    void look_for_errors() { known_.look_for_errors(); }

private:
    Result<void> load();
    // The tables of devices and addresses that the programs read.
    void write_devices();
    void write_device(const inventory::RdmaDevice &device);
    // Queue pairs that existed before the probes, from RDMA netlink.
    void dump_existing();
    void add_existing(const netlink::NetlinkQp &qp, const std::string &device);
    void on_file_mapped(const cw_file_mapped &record);
    void scan_mapped();
    void poll_processes();
    // The kernel destroys the queue pairs of a process that exits: no call of libibverbs' does.
    void append_destroyed_by_exit(source::RecordSink &sink);
    void settle_comparison(std::uint64_t until_ns);
    [[nodiscard]] std::uint64_t unread(cw_verbs_unread reason) const;

    const loader::SharedMaps &maps_;
    VerbsQpOptions options_;
    loader::Skeleton<::verbs_qp> skeleton_;
    VerbsLibraries libraries_;
    source::SourceState failure_; // why it does not run
    std::string dump_failure_;
    KnownQps known_;
    VerbsPaths paths_;
    std::vector<cw_qp_event> completed_; // by paths, since the last sample
    VerbsComparison comparison_;
    std::map<std::string, cw_verbs_device> written_devices_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, cw_verbs_gid> written_gids_;
    MappedProcesses mapped_;
    process::ProcessPolls polls_;
    std::set<std::uint32_t> exited_; // owners that had exited at the last sample
    bool attached_ = false;
    bool has_ended_ = false;
};

} // namespace collwire::sources
