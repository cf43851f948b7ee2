// SPDX-License-Identifier: Apache-2.0
// Slices: the posts of processes whose queue pairs are all NCCL's are counted now and then, and by
// operation, to verify the bytes that follow from NCCL's operations. docs/sources/posts.md
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "userspace/sources/posts_source.h"
#include "verbs_post.skel.h"

namespace collwire::sources {
namespace {

constexpr std::uint32_t MAX_WATCHED_QPS = 65536;
constexpr std::uint32_t MAX_WATCHED_CONNECTIONS = 16384;

std::uint32_t counted_of(PostsCounted counted) {
    switch (counted) {
    case PostsCounted::All:
        break;
    case PostsCounted::Slice:
        return CW_POSTS_SLICE;
    case PostsCounted::Paused:
        return CW_POSTS_PAUSED;
    }
    return CW_POSTS_ALL;
}

} // namespace

void PostsSource::size_slice_maps() {
    const bool slices = options_.slices.on_ns != 0;
    skeleton_->rodata->watches_connections = slices;
    bpf_map__set_max_entries(skeleton_->maps.watched_qps, slices ? MAX_WATCHED_QPS : 1);
    bpf_map__set_max_entries(skeleton_->maps.watched_connections,
                             slices ? MAX_WATCHED_CONNECTIONS : 1);
}

// The owner of a queue pair is known by its address in NCCL's memory, by the thread that made it,
// and by its other end.
void PostsSource::note_owner(const cw_qp_event &event) {
    if (options_.slices.on_ns == 0 || (event.flags & (CW_QP_KERNEL | CW_QP_DEVX)) != 0)
        return;
    OwnedQp &qp = owned_[event.key];
    qp.pid = static_cast<pid_t>(event.tgid);
    if (event.user_handle != 0)
        qp.address = event.user_handle;
    if (event.header.kind == CW_KIND_QP_CREATE)
        qp.maker_tid = event.tid;
    if ((event.flags & CW_QP_DEST) != 0)
        qp.is_own_peer = event.dest_qpn == event.key.qpn;
}

// Whether all queue pairs here are NCCL's, and all their bytes follow from NCCL's operations.
// Anything that is not known to be so is counted.
bool PostsSource::may_pause() {
    if (!attached_ || !pending_.empty() || !options_.nccl_queue_pairs)
        return false;
    std::erase_if(owned_, [](const auto &qp) { return is_gone(qp.second.pid); });
    struct OfProcess {
        std::vector<const OwnedQp *> unknown;
        std::set<std::uint32_t> makers;
        const source::NcclQueuePairs *nccl = nullptr;
    };
    std::map<pid_t, OfProcess> processes;
    for (const auto &[key, qp] : owned_) {
        const auto [entry, is_new] = processes.try_emplace(qp.pid);
        OfProcess &of = entry->second;
        if (is_new) {
            of.nccl = options_.nccl_queue_pairs(static_cast<std::uint32_t>(qp.pid));
            if (of.nccl == nullptr || !of.nccl->are_derived)
                return false;
        }
        if (qp.address != 0 && std::ranges::binary_search(of.nccl->addresses, qp.address)) {
            if (qp.maker_tid != 0)
                of.makers.insert(qp.maker_tid);
        } else if (!qp.is_own_peer) {
            of.unknown.push_back(&qp);
        }
    }
    return !processes.empty() && std::ranges::all_of(processes, [](const auto &process) {
        return std::ranges::all_of(process.second.unknown, [&](const OwnedQp *qp) {
            return process.second.makers.contains(qp->maker_tid);
        });
    });
}

void PostsSource::follow_schedule() {
    if (options_.slices.on_ns == 0 || is_over_ || has_lost_probes_ || !taken_off_.empty())
        return;
    const PostsCounted next = schedule_.at(monotonic_ns(), may_pause());
    if (next == counted_)
        return;
    if (counted_ == PostsCounted::Slice)
        end_slice();
    const std::uint64_t begin_ns = monotonic_ns();
    if (next == PostsCounted::Paused) {
        sites_.pause();
    } else {
        if (next == PostsCounted::Slice)
            watch_connections();
        // A refused probe is a problem of the sites. In the capture the pause goes on.
        has_lost_probes_ = counted_ == PostsCounted::Paused && !sites_.resume();
        if (has_lost_probes_)
            return;
    }
    const std::uint64_t done_ns = monotonic_ns();
    schedule_.placed(done_ns);
    counted_ = next;
    note_counted(next == PostsCounted::Paused ? begin_ns : done_ns, done_ns - begin_ns);
}

void PostsSource::note_counted(std::uint64_t since_ns, std::uint64_t change_ns) {
    cw_post_slice record = {};
    record.header = {sizeof(record), CW_KIND_POST_SLICE, CW_CPU_USERSPACE, since_ns};
    record.on_ns = options_.slices.on_ns;
    record.period_ns = options_.slices.period_ns;
    record.change_ns = change_ns;
    record.counted = counted_of(counted_);
    record.n_connections = static_cast<std::uint32_t>(watched_.size());
    slice_since_ns_ = since_ns;
    slice_records_.push_back(record);
}

// The program adds posts to entries that are there, and makes none.
void PostsSource::watch_connections() {
    const int connections = bpf_map__fd(skeleton_->maps.watched_connections);
    const int qps = bpf_map__fd(skeleton_->maps.watched_qps);
    std::set<std::uint32_t> tgids;
    for (const auto &[key, qp] : owned_)
        tgids.insert(static_cast<std::uint32_t>(qp.pid));
    for (const std::uint32_t tgid : tgids) {
        const source::NcclQueuePairs *nccl = options_.nccl_queue_pairs(tgid);
        if (nccl == nullptr)
            continue;
        for (const source::NcclSender &sender : nccl->senders) {
            const cw_watched_key key = {sender.connection, tgid, 0};
            const cw_watched_sums none = {};
            if (bpf_map_update_elem(connections, &key, &none, BPF_ANY) != 0)
                continue;
            watched_.push_back(key);
            for (const std::uint64_t address : sender.queue_pairs) {
                const cw_watched_key qp_key = {address, tgid, 0};
                const cw_watched_qp qp = {sender.connection, sender.steps_at};
                if (bpf_map_update_elem(qps, &qp_key, &qp, BPF_ANY) == 0)
                    watched_qps_.push_back(qp_key);
            }
        }
    }
}

// Before the probes are detached: what a post adds later is of no slice.
void PostsSource::end_slice() {
    const int connections = bpf_map__fd(skeleton_->maps.watched_connections);
    const int qps = bpf_map__fd(skeleton_->maps.watched_qps);
    for (const cw_watched_key &key : watched_qps_)
        (void)bpf_map_delete_elem(qps, &key);
    const std::uint64_t now_ns = monotonic_ns();
    for (const cw_watched_key &key : watched_) {
        cw_watched_sums sums = {};
        if (bpf_map_lookup_elem(connections, &key, &sums) != 0 ||
            bpf_map_delete_elem(connections, &key) != 0 || (sums.changes == 0 && sums.faults == 0))
            continue;
        cw_post_operations record = {};
        record.header = {sizeof(record), CW_KIND_POST_OPERATIONS, CW_CPU_USERSPACE, now_ns};
        record.begin_ns = slice_since_ns_;
        record.connection = key.address;
        record.tgid = key.tgid;
        record.from_steps = sums.from_steps;
        record.to_steps = sums.to_steps;
        record.bytes = sums.bytes;
        record.posts = sums.posts;
        record.operations = sums.operations;
        record.edge_bytes = sums.edge_bytes + sums.open_bytes;
        record.flags = sums.faults != 0 ? CW_POST_OPERATIONS_FAULT : 0;
        operation_records_.push_back(record);
    }
    watched_.clear();
    watched_qps_.clear();
}

void PostsSource::append_slices(source::RecordSink &sink, bool everything) {
    if (!slice_records_.empty())
        last_slice_record_ = slice_records_.back();
    else if (everything && last_slice_record_)
        sink.append(last_slice_record_->header);
    for (const cw_post_slice &record : std::exchange(slice_records_, {}))
        sink.append(record.header);
    for (const cw_post_operations &record : std::exchange(operation_records_, {}))
        sink.append(record.header);
}

std::uint64_t PostsSource::due_ns() const {
    return is_over_ || has_lost_probes_ || !taken_off_.empty() ? 0 : schedule_.due_ns();
}

void PostsSource::on_due() {
    if (const std::uint64_t due = due_ns(); due != 0 && monotonic_ns() >= due)
        follow_schedule();
}

// What a slice has counted until the recording ends is complete.
void PostsSource::end() {
    is_over_ = true;
    if (counted_ == PostsCounted::Slice)
        end_slice();
}

} // namespace collwire::sources
