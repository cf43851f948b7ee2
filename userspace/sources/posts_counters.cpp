// SPDX-License-Identifier: Apache-2.0
// What was posted, out of the programs' table, and when an entry of it is of no use any more.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "collwire/post_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"
#include "userspace/sources/posts_source.h"
#include "userspace/verbs/live_verbs.h"
#include "verbs_post.skel.h"

namespace collwire::sources {
namespace {

bool is_thread_gone(pid_t pid, pid_t tid) {
    return tgkill(pid, tid, 0) != 0 && errno == ESRCH;
}

void add(cw_post_counters &sum, std::uint32_t post_class, const cw_post_slot &slot) {
    if (slot.first_ns != 0 && (sum.first_ns == 0 || slot.first_ns < sum.first_ns))
        sum.first_ns = slot.first_ns;
    sum.posts += slot.posts;
    sum.truncated_posts += slot.truncated_posts;
    sum.fault_posts += slot.fault_posts;
    sum.aborted_wrs += slot.aborted_wrs;
    if (post_class >= CW_POST_CLASSES)
        return;
    cw_post_class_counters &to = sum.classes[post_class];
    to.wrs += slot.sum.counters.wrs;
    to.zero_length_wrs += slot.sum.counters.zero_length_wrs;
    to.bytes += slot.sum.counters.bytes;
    to.pad_bytes += slot.sum.counters.pad_bytes;
    for (unsigned i = 0; i < CW_MTU_CLASSES; ++i)
        to.packets[i] += slot.sum.counters.packets[i];
    if (post_class == CW_POST_READ)
        for (unsigned i = 0; i < CW_MTU_CLASSES; ++i)
            sum.multi_packet_reads[i] += slot.sum.multi_packet[i];
}

void add(cw_post_counters &sum, const cw_post_counters &more) {
    for (std::uint32_t i = 0; i < CW_POST_CLASSES; ++i) {
        cw_post_slot slot{};
        slot.sum.counters = more.classes[i];
        if (i == CW_POST_READ)
            std::copy(std::begin(more.multi_packet_reads), std::end(more.multi_packet_reads),
                      std::begin(slot.sum.multi_packet));
        add(sum, i, slot);
    }
    cw_post_slot head{};
    head.first_ns = more.first_ns;
    head.posts = more.posts;
    head.truncated_posts = more.truncated_posts;
    head.fault_posts = more.fault_posts;
    head.aborted_wrs = more.aborted_wrs;
    add(sum, CW_POST_OTHER, head);
}

// Grows with every change of the counters.
std::uint64_t activity(const cw_post_counters &counters) {
    std::uint64_t sum =
        counters.posts + counters.truncated_posts + counters.fault_posts + counters.aborted_wrs;
    for (const cw_post_class_counters &of_class : counters.classes)
        sum += of_class.wrs;
    return sum;
}

} // namespace

bool PostsSource::read_counters(KeyMap<Counted> &all) {
    const bool complete = reader_->for_each(
        [&](std::span<const std::byte> key_bytes, std::span<const std::byte> value) {
            cw_slot_key key;
            std::memcpy(&key, key_bytes.data(), sizeof(key));
            cw_post_slot slot;
            std::memcpy(&slot, value.data(), sizeof(slot));
            Counted &counted = all[key.qp];
            // The reader may see an entry twice.
            const bool again = std::ranges::any_of(counted.slots, [&key](const cw_slot_key &other) {
                return other.tid == key.tid && other.post_class == key.post_class;
            });
            if (again)
                return;
            counted.slots.push_back(key);
            add(counted.counters, key.post_class, slot);
        });
    for (auto &[key, counted] : all)
        if (const auto retired = retired_.find(key); retired != retired_.end())
            add(counted.counters, retired->second);
    // All of its threads may be dead, the queue pair is not.
    for (const auto &[key, counters] : retired_)
        if (!all.contains(key))
            all[key].counters = counters;
    return complete;
}

// Programs with short-lived threads must not fill the table. What a thread counted is kept here
// once it was dead for a whole sample.
void PostsSource::retire_dead_threads(const KeyMap<Counted> &all) {
    const int posts = bpf_map__fd(skeleton_->maps.posts);
    KeyMap<std::set<std::uint32_t>> dead;
    for (const auto &[key, counted] : all) {
        const auto before = dead_threads_.find(key);
        for (const cw_slot_key &slot_key : counted.slots) {
            if (!is_thread_gone(static_cast<pid_t>(key.tgid), static_cast<pid_t>(slot_key.tid)))
                continue;
            cw_post_slot slot;
            if (before == dead_threads_.end() || !before->second.contains(slot_key.tid)) {
                dead[key].insert(slot_key.tid);
            } else if (bpf_map_lookup_elem(posts, &slot_key, &slot) == 0 &&
                       bpf_map_delete_elem(posts, &slot_key) == 0) {
                add(retired_[key], slot_key.post_class, slot);
            }
        }
    }
    dead_threads_ = std::move(dead);
}

void PostsSource::sample(source::RecordSink &sink, bool everything) {
    if (!reader_)
        return;
    retry_pending();
    follow_schedule();
    append_slices(sink, everything);
    sites_.append_new(sink);
    if (everything)
        for (const auto &[key, tie] : ties_)
            sink.append(tie.header);
    KeyMap<Counted> all;
    // Sums of a part would be less than those reported before. The next sample has them.
    has_read_all_ = read_counters(all);
    if (!has_read_all_)
        return;
    // Reading may take long on a busy machine: nothing is counted that was posted after its
    // record's time.
    const std::uint64_t now = monotonic_ns();
    for (const auto &[key, counted] : all) {
        const cw_post_counters &counters = counted.counters;
        if (!ties_.contains(key))
            tie_unannounced(sink, key, counters.first_ns);
        const std::uint64_t now_active = activity(counters);
        Appended &before = appended_[key];
        if (now_active == before.activity && !everything)
            continue;
        if (now_active != before.activity)
            before = {now_active, now};
        cw_qp_post record = {};
        record.header = {sizeof(record), CW_KIND_QP_POST, CW_CPU_USERSPACE, now};
        record.key = key;
        record.counters = counters;
        record.counters.last_ns = before.last_ns;
        sink.append(record.header);
    }
    retire_dead_threads(all);
    forget_stale(all);
    sites_.drop_unused(now);
}

// Its record was lost in the ring buffer, or is still in it: the second time it is made here.
void PostsSource::tie_unannounced(source::RecordSink &sink, const cw_verbs_key &key,
                                  std::uint64_t first_ns) {
    if (untied_.emplace(key, true).second)
        return;
    cw_verbs_qp tie = {};
    tie.header = {sizeof(tie), CW_KIND_VERBS_QP, CW_CPU_USERSPACE, first_ns};
    tie.key = key;
    const process::ProcessView view{static_cast<pid_t>(key.tgid)};
    const auto device = view.read<std::uint64_t>(key.context + CW_IBV_CONTEXT_DEVICE);
    if (!device ||
        !view.read(*device + CW_IBV_DEVICE_NAME, std::as_writable_bytes(std::span{tie.device})))
        return;
    tie.device[sizeof(tie.device) - 1] = '\0';
    ties_.emplace(key, tie);
    sink.append(tie.header);
}

// Counters stay for one whole sample after their queue pair or process is gone, so that the last
// posts are read.
void PostsSource::forget_stale(const KeyMap<Counted> &all) {
    std::erase_if(views_, [](const auto &view) { return is_gone(view.first); });
    std::erase_if(resolved_, [this](const auto &qp) { return !views_.contains(qp.second); });
    std::erase_if(scanned_, [this](const auto &scan) { return !views_.contains(scan.first); });
    KeyMap<bool> stale;
    const auto look_at = [&](const cw_verbs_key &key) {
        const cw_epoch_key epoch_key = {key.tgid, key.qpn};
        std::uint32_t epoch = 0;
        (void)bpf_map_lookup_elem(maps_.post_epochs_fd(), &epoch_key, &epoch);
        if (epoch > key.epoch || is_gone(static_cast<pid_t>(key.tgid)))
            stale.emplace(key, true);
    };
    for (const auto &[key, counted] : all)
        look_at(key);
    for (const auto &[key, tie] : ties_)
        if (!all.contains(key)) // the table was full
            look_at(key);
    std::erase_if(stale, [&](const auto &entry) {
        if (!stale_.contains(entry.first))
            return false;
        const auto counted = all.find(entry.first);
        forget_key(entry.first, counted == all.end() ? Counted{} : counted->second);
        return true;
    });
    stale_ = std::move(stale);
}

void PostsSource::forget_key(const cw_verbs_key &key, const Counted &counted) {
    const int posts = bpf_map__fd(skeleton_->maps.posts);
    for (const cw_slot_key &slot : counted.slots)
        (void)bpf_map_delete_elem(posts, &slot);
    (void)bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.announced_qps), &key);
    if (const auto tie = ties_.find(key); tie != ties_.end()) {
        const cw_batch_key batch = {tie->second.qp_address, key.tgid, 0};
        (void)bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.batches), &batch);
        ties_.erase(tie);
    }
    appended_.erase(key);
    untied_.erase(key);
    retired_.erase(key);
    dead_threads_.erase(key);
}

} // namespace collwire::sources
