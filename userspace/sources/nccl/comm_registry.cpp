// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_layout.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/comm_registry.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/nccl_tables.h"
#include "userspace/inventory/process.h"
#include "userspace/nccl/memory/channels.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/nccl/memory/local_connections.h"
#include "userspace/nccl/memory/nvls.h"

namespace collwire::sources {
namespace {

// Rings and trees of all communicators: 500 of 4,096 ranks with 32 channels have this much. A
// program can make up 16 MiB for each communicator.
constexpr std::size_t MAX_CHANNEL_BYTES = 256U << 20U;
// A program can make up thousands of communicators with unreadable connections.
constexpr std::uint64_t MAX_LOCAL_READ_NS = 50'000'000;
// In one sample, about; a segment starts with all of them.
constexpr std::size_t MAX_SAMPLE_BYTES = 64U << 20U;

std::size_t sum_of_bytes(const std::vector<RecordBytes> &records) {
    std::size_t sum = 0;
    for (const RecordBytes &record : records)
        sum += record.size();
    return sum;
}

// But for the time.
bool are_alike(const std::vector<cw_nccl_local> &a, const std::vector<cw_nccl_local> &b) {
    const auto text_of = [](const cw_nccl_local &local) {
        return std::string_view(reinterpret_cast<const char *>(&local) + sizeof(local.header),
                                sizeof(local) - sizeof(local.header));
    };
    return std::ranges::equal(a, b, {}, text_of, text_of);
}

} // namespace

void CommRegistry::add(const cw_nccl_comm &record) {
    Comm &comm = comms_[{record.tgid, record.comm}];
    drop_channels(comm);
    // The creation of a communicator may complete after its memory was read.
    if ((comm.record.flags & CW_NCCL_COMM_OUTSIDE) == 0 ||
        comm.record.comm_hash != record.comm_hash || comm.record.rank != record.rank)
        comm = {};
    comm.record = record;
}

void CommRegistry::read_channels(const CommAddress &address) {
    const auto found = comms_.find(address);
    if (found == comms_.end())
        return;
    Comm &comm = found->second;
    const NcclLibrary *library = libraries_.find(comm.record.image_id);
    if (library == nullptr)
        return;
    const process::ProcessView view{static_cast<pid_t>(comm.record.tgid)};
    comm.channels = nccl::read_channels(
        view, library->layout, comm.record,
        MAX_CHANNEL_BYTES - std::min(channel_bytes_, MAX_CHANNEL_BYTES), &are_channels_cut_);
    if (const auto nvls = nccl::read_nvls(view, library->layout, comm.record))
        comm.channels.insert(comm.channels.begin(), bytes_of_record(*nvls));
    comm.has_new_channels = !comm.channels.empty();
    channel_bytes_ += sum_of_bytes(comm.channels);
}

void CommRegistry::want_local_connections(const CommAddress &address) {
    if (const auto found = comms_.find(address); found != comms_.end())
        found->second.wants_locals = found->second.record.local_ranks > 1;
}

void CommRegistry::read_local_connections() {
    const std::uint64_t end_ns = monotonic_ns() + MAX_LOCAL_READ_NS;
    for (auto &[address, comm] : comms_) {
        if (!comm.wants_locals)
            continue;
        if (monotonic_ns() >= end_ns)
            return;
        comm.wants_locals = false;
        const NcclLibrary *library = libraries_.find(comm.record.image_id);
        if (library == nullptr)
            continue;
        std::vector<cw_nccl_local> locals = nccl::read_local_connections(
            process::ProcessView{static_cast<pid_t>(address.tgid)}, library->layout, comm.record);
        if (locals.empty() || are_alike(locals, comm.locals))
            continue;
        comm.locals = std::move(locals);
        comm.has_new_locals = true;
    }
}

void CommRegistry::append_new_local_connections(source::RecordSink &sink) {
    for (auto &[address, comm] : comms_)
        if (std::exchange(comm.has_new_locals, false))
            for (const cw_nccl_local &local : comm.locals)
                sink.append(local.header);
}

// Its communicator has ended, or is read again. What no sample has yet goes into the next one.
void CommRegistry::drop_channels(Comm &comm) {
    const std::size_t bytes = sum_of_bytes(comm.channels);
    if (comm.has_new_channels && pending_channel_bytes_ < MAX_SAMPLE_BYTES) {
        for (RecordBytes &channel : comm.channels)
            pending_.add_bytes(std::move(channel));
        pending_channel_bytes_ += bytes;
    } else {
        are_channels_cut_ = are_channels_cut_ || comm.has_new_channels;
        channel_bytes_ -= bytes;
    }
    comm.channels.clear();
    comm.has_new_channels = false;
}

void CommRegistry::on_pending_cleared() {
    channel_bytes_ -= std::exchange(pending_channel_bytes_, 0);
}

std::string CommRegistry::channels_problem() const {
    if (!are_channels_cut_)
        return {};
    return fmt::format("the rings and trees of all communicators take more than {} MiB: some "
                       "communicators have none in the capture, or no order of ranks. Fix: --pid",
                       MAX_CHANNEL_BYTES >> 20U);
}

void CommRegistry::read_counts() {
    for (auto &[address, comm] : comms_) {
        const NcclLibrary *library = libraries_.find(comm.record.image_id);
        if (library != nullptr && library->bpf_layout)
            nccl::read_counts(process::ProcessView{static_cast<pid_t>(address.tgid)},
                              library->layout, *library->bpf_layout, comm.record);
    }
}

void CommRegistry::add_connection(const CommAddress &address,
                                  const cw_nccl_connection &connection) {
    if (const auto found = comms_.find(address); found != comms_.end())
        found->second.connections.insert_or_assign({connection.connection, connection.first},
                                                   bytes_of_record(connection));
}

bool CommRegistry::add_pxn_connection(const CommAddress &address, std::uint64_t connection) {
    const auto found = comms_.find(address);
    return found != comms_.end() && found->second.pxn_connections.insert(connection).second;
}

void CommRegistry::remove(const CommAddress &address) {
    const auto found = comms_.find(address);
    if (found == comms_.end())
        return;
    drop_channels(found->second);
    comms_.erase(found);
}

void CommRegistry::remove_all(std::uint32_t tgid, std::uint32_t image_id,
                              std::uint64_t start_boottime_ns) {
    const NcclLibrary *library = libraries_.find(image_id);
    for (auto at = comms_.lower_bound({tgid, 0}); at != comms_.end() && at->first.tgid == tgid;) {
        const cw_nccl_comm &record = at->second.record;
        if (record.image_id != image_id ||
            !inventory::same_start(record.start_boottime_ns, start_boottime_ns)) {
            ++at;
            continue;
        }
        const cw_nccl_comm_key entry = {record.comm, tgid, 0};
        if (library != nullptr && library->programs)
            (void)bpf_map_delete_elem(bpf_map__fd((*library->programs)->maps.comms), &entry);
        drop_channels(at->second);
        at = comms_.erase(at);
    }
}

const cw_nccl_comm *CommRegistry::find(const CommAddress &address) const {
    const auto found = comms_.find(address);
    return found == comms_.end() ? nullptr : &found->second.record;
}

bool CommRegistry::has_connection(const CommAddress &address,
                                  const cw_nccl_connection &connection) const {
    const auto found = comms_.find(address);
    return found != comms_.end() &&
           found->second.connections.contains({connection.connection, connection.first});
}

std::vector<cw_nccl_comm> CommRegistry::all() const {
    std::vector<cw_nccl_comm> records;
    records.reserve(comms_.size());
    for (const auto &[address, comm] : comms_)
        records.push_back(comm.record);
    return records;
}

void CommRegistry::append_all(source::RecordSink &sink) {
    for (auto &[address, comm] : comms_) {
        sink.append(comm.record.header);
        for (const RecordBytes &channel : comm.channels)
            append(sink, channel);
        comm.has_new_channels = false;
        for (const cw_nccl_local &local : comm.locals)
            sink.append(local.header);
        comm.has_new_locals = false;
        for (const auto &[place, connection] : comm.connections)
            append(sink, connection);
    }
}

void CommRegistry::append_new_channels(source::RecordSink &sink, bool is_last) {
    std::size_t bytes = 0;
    for (auto &[address, comm] : comms_) {
        if (!comm.has_new_channels)
            continue;
        if (bytes >= MAX_SAMPLE_BYTES && !is_last)
            return;
        for (const RecordBytes &channel : comm.channels)
            append(sink, channel);
        bytes += sum_of_bytes(comm.channels);
        comm.has_new_channels = false;
    }
}

} // namespace collwire::sources
