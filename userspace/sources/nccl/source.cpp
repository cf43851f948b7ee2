// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "collwire/loss_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/queue_pair_paths.h"

namespace collwire::sources {
namespace {

// Earlier versions count the steps of an operation when it completes.
constexpr std::uint32_t FIRST_THAT_COUNTS_STARTS = 22000;
// Before, operations have no byte fields: their bytes are replayed, or bounds.
constexpr std::uint32_t FIRST_WITH_BYTES = 22400;

template <typename T> T copy_of(const cw_header &header) {
    T record{};
    std::memcpy(&record, &header, std::min<std::size_t>(sizeof(T), header.length_bytes));
    return record;
}

std::optional<NcclPlugins::QpNumbers> qp_numbers(const loader::SharedMaps &maps) {
    const auto live = maps.live_qps();
    if (!live)
        return std::nullopt;
    NcclPlugins::QpNumbers numbers;
    for (const cw_live_qp &qp : *live)
        numbers[qp.tgid].insert(qp.key.qpn);
    return numbers;
}

} // namespace

NcclSource::NcclSource(const loader::SharedMaps &maps, NcclOptions options)
    : options_(std::move(options)),
      libraries_(maps, options_.probes, options_.spare_unused_ns, options_.rearm_mappings),
      library_watch_(libraries_,
                     {options_.has_mapping_records, options_.rearm_mappings,
                      [this](std::uint32_t last_known) {
                          discovery_.scan(libraries_.processes(), last_known);
                      },
                      [this](std::uint32_t image_id) { return processes_.uses(image_id); }}),
      discovery_(libraries_, comms_,
                 {[this](const cw_nccl_comm &record) {
                      pending_.add(record);
                      on_comm(record);
                      if (options_.on_discovered_comm)
                          options_.on_discovered_comm(record.header);
                  },
                  [this](const CommAddress &address, const cw_nccl_connection &connection) {
                      on_discovered_connection(address, connection);
                  }}),
      pxn_(libraries_, comms_,
           [this](const CommAddress &address, const cw_nccl_connection &connection) {
               on_discovered_connection(address, connection);
           }),
      unread_(libraries_, comms_,
              [this](const CommAddress &address, const cw_nccl_connection &connection) {
                  on_discovered_connection(address, connection);
              }),
      plugins_(libraries_, comms_, [&maps] { return qp_numbers(maps); }),
      errors_(libraries_, options_.on_error) {}

NcclSource::~NcclSource() = default;

Result<void> NcclSource::prepare() {
    for (const std::string &file : options_.files)
        if (auto added = libraries_.add_file(file); !added)
            return added;
    (void)library_watch_.scan_all();
    return {};
}

std::vector<source::PlannedProbe> NcclSource::probe_list() const {
    std::vector<source::PlannedProbe> probes;
    for (const auto &library : libraries_.all())
        probes.insert(probes.end(), library->probes.begin(), library->probes.end());
    return probes;
}

Result<void> NcclSource::attach() {
    libraries_.attach();
    const auto pids = library_watch_.scan_all(); // also those that started after prepare
    if (!libraries_.all().empty())
        discovery_.scan(pids, 0);
    return {};
}

std::vector<source::SourceState> NcclSource::states() const {
    std::vector<std::string> problems = taken_off_;
    for (std::string &problem : libraries_.problems())
        problems.push_back(std::move(problem));
    if (discovery_.is_cut())
        problems.emplace_back("a process has more communicators, ranks or connections than are "
                              "read from its memory: the others are discovered at their first "
                              "calls and launches. Fix: start the recording before the job");
    for (std::string &problem : unread_.problems())
        problems.push_back(std::move(problem));
    for (const std::string &problem : {comms_.channels_problem(), plugins_.problem(ended_)})
        if (!problem.empty())
            problems.push_back(problem);
    if (problems.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason = problems.front();
    if (problems.size() > 1)
        reason += fmt::format(" (and {} more)", problems.size() - 1);
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

void NcclSource::on_comm(const cw_nccl_comm &record) {
    const LibraryUser user = {record.tgid, record.image_id};
    const CommAddress address = {record.tgid, record.comm};
    // First: the communicator may live for a moment only, the process's parameters stay.
    comms_.add(record);
    comms_.read_channels(address);
    comms_.want_local_connections(address);
    errors_.add(record);
    if (processes_.add(record))
        parameters_.forget(user);
    parameters_.read(user);
}

void NcclSource::on_comm_end(const CommAddress &address) {
    if (const cw_nccl_comm *comm = comms_.find(address))
        parameters_.on_comm_end({address.tgid, comm->image_id});
    comms_.remove(address);
    steps_.forget(address.tgid, address.comm);
    queue_pairs_.forget(address.tgid, address.comm);
    plugins_.remove(address);
    errors_.remove(address.tgid, address.comm);
    unread_.remove(address);
}

// Of the ring buffer.
void NcclSource::on_connection(const CommAddress &address, const cw_nccl_connection &connection) {
    add_connection(address, connection);
    if ((connection.flags & CW_NCCL_CONNECTION_FAULT) != 0)
        unread_.add(address, connection);
    plugins_.poll_if_due(); // the communicator may end before the next sample
    watch_steps(address, connection);
    if (const cw_nccl_comm *comm = comms_.find(address))
        parameters_.on_connection({address.tgid, comm->image_id});
}

void NcclSource::on_discovered_connection(const CommAddress &address,
                                          const cw_nccl_connection &connection) {
    pending_.add(connection);
    add_connection(address, connection);
    if ((connection.flags & CW_NCCL_CONNECTION_FAULT) != 0)
        unread_.add(address, connection);
    watch_steps(address, connection);
    if (options_.on_connection)
        options_.on_connection(connection.header);
}

void NcclSource::add_connection(const CommAddress &address, const cw_nccl_connection &connection) {
    comms_.add_connection(address, connection);
    plugins_.add(address, connection);
    if (options_.on_queue_pair_path && options_.lacks_queue_pair_paths(connection.tgid))
        read_paths(address, connection);
}

void NcclSource::read_paths(const CommAddress &address, const cw_nccl_connection &connection) {
    const cw_nccl_comm *comm = comms_.find(address);
    const NcclLibrary *library = comm == nullptr ? nullptr : libraries_.find(comm->image_id);
    if (library == nullptr)
        return;
    const process::ProcessView process{static_cast<pid_t>(connection.tgid)};
    for (const auto &path : nccl::read_queue_pair_paths(process, library->layout, connection))
        options_.on_queue_pair_path(path);
}

void NcclSource::on_record(const cw_header &header) {
    switch (header.kind) {
    case CW_KIND_FILE_MAPPED:
        library_watch_.on_file_mapped(copy_of<cw_file_mapped>(header));
        break;
    case CW_KIND_NCCL_COMM: {
        const auto record = copy_of<cw_nccl_comm>(header);
        on_comm(record);
        discovery_.on_comm(record);
        break;
    }
    case CW_KIND_NCCL_COMM_END: {
        const auto record = copy_of<cw_nccl_comm_end>(header);
        on_comm_end({record.tgid, record.comm});
        break;
    }
    case CW_KIND_NCCL_CONNECTION: {
        const auto record = copy_of<cw_nccl_connection>(header);
        on_connection({record.tgid, record.comm}, record);
        break;
    }
    case CW_KIND_NCCL_LAUNCH: {
        const auto record = copy_of<cw_nccl_launch>(header);
        shapes_.use(record.tgid, record.shape);
        break;
    }
    case CW_KIND_NCCL_WARNING:
        errors_.on_warning(copy_of<cw_nccl_warning>(header).tgid);
        break;
    case CW_KIND_NCCL_SHAPE_TASK: {
        const auto record = copy_of<cw_nccl_shape_task>(header);
        shapes_.add(record);
        // NCCL connects two ranks when a launch first needs it, and that launch has a new shape.
        comms_.want_local_connections({record.tgid, record.comm});
        break;
    }
    case CW_KIND_NCCL_SHAPE_OPS: {
        const auto record = copy_of<cw_nccl_shape_ops>(header);
        shapes_.add(record);
        pxn_.on_operations(record);
        break;
    }
    default:
        break;
    }
}

void NcclSource::sample(source::RecordSink &sink, bool everything) {
    if (!ended_)
        library_watch_.poll(everything);
    pxn_.poll();
    if (!ended_)
        forget_exited();
    parameters_.poll();
    library_watch_.append(sink, everything);
    processes_.append_exited(sink);
    if (!ended_) {
        unread_.poll();
        errors_.poll();
    }
    errors_.append(sink, everything);
    plugins_.append(sink, everything, ended_);
    // Launches while probes are detached are not recorded, so their steps are not, either.
    if (!ended_)
        steps_.poll(everything);
    steps_.append(sink);
    if (!ended_)
        comms_.read_local_connections();
    if (options_.on_stall && !ended_ && steps_.is_stalled(options_.stall_ns))
        options_.on_stall();
    if (everything) {
        processes_.append_all(sink,
                              [&](const LibraryUser &user) { parameters_.append(sink, user); });
        comms_.append_all(sink);
        shapes_.begin_segment();
    } else {
        pending_.append_to(sink);
        comms_.append_new_channels(sink, ended_);
        comms_.append_new_local_connections(sink);
    }
    pending_.clear();
    comms_.on_pending_cleared();
    shapes_.append(sink);
}

std::vector<source::LossCount> NcclSource::losses() const {
    if (shapes_.lost() == 0)
        return {};
    return {{CW_LOSS_NCCL_SHAPE, CW_CPU_USERSPACE, shapes_.lost()}};
}

void NcclSource::watch_steps(const CommAddress &address, const cw_nccl_connection &connection) {
    const cw_nccl_comm *comm = comms_.find(address);
    const NcclLibrary *library = comm == nullptr ? nullptr : libraries_.find(comm->image_id);
    if (library == nullptr || !library->bpf_layout) {
        queue_pairs_.add(connection, 0, false, false);
        return;
    }
    // A shared connection belongs to the communicator that this one was split from.
    const bool is_lasting =
        (comm->flags & CW_NCCL_COMM_SHARED) != 0 || connection.tgid != address.tgid;
    const std::uint32_t version = nccl::version_number(library->layout.version);
    steps_.add(connection, *library->bpf_layout, is_lasting, version >= FIRST_THAT_COUNTS_STARTS);
    queue_pairs_.add(connection, steps_.address_of(connection.tgid, connection.connection),
                     is_lasting, version >= FIRST_WITH_BYTES);
}

void NcclSource::end() {
    steps_.poll(false);
    errors_.poll();
    comms_.read_local_connections();
    forget_exited();
    ended_ = true;
}

void NcclSource::take_off(std::string_view group, std::string reason) {
    using enum NcclProbeGroup;
    for (const NcclProbeGroup each : {Times, Warnings, Operations, Control})
        if (group == name_of(each))
            libraries_.start_taking_off(each);
    taken_off_.insert(taken_off_.begin(), std::move(reason));
}

void NcclSource::detach() {
    if (!ended_)
        end();
    libraries_.detach();
}

// A process that exits does not end its communicators, and its number is used again.
void NcclSource::forget_exited() {
    for (const ProcessWatch::Exited &exited : processes_.poll()) {
        const std::uint32_t tgid = exited.user.tgid;
        steps_.forget(tgid);
        queue_pairs_.forget(tgid);
        errors_.forget(tgid);
        plugins_.forget(tgid);
        unread_.remove_all(tgid);
        discovery_.forget(tgid);
        parameters_.forget(exited.user);
        comms_.remove_all(tgid, exited.user.image_id, exited.start_boottime_ns);
    }
}

} // namespace collwire::sources
