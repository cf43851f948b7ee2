// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/posts_source.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "collwire/tables.h"
#include "userspace/base/clock.h"
#include "userspace/providers/installed.h"
#include "userspace/providers/live_verbs.h"
#include "verbs_post.skel.h"

namespace collwire {
namespace {

constexpr std::uint32_t DEFAULT_SLOTS = 65536; // 12 MiB
// A queue pair takes some slots, of a table whose entries are small, and one batch of 1,264 bytes.
constexpr std::uint32_t SLOTS_PER_BATCH = 4;
constexpr std::uint32_t LEAST_BATCHES = 4096;
constexpr unsigned MAX_TRIES = 10;
constexpr std::size_t MAX_PENDING = 4096;

bool is_gone(pid_t pid) {
    return kill(pid, 0) != 0 && errno == ESRCH;
}

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

bool asked_for_bounded_walk() {
    const char *value = std::getenv("COLLWIRE_NO_BPF_LOOP");
    return value != nullptr && std::string_view{value} == "1";
}

} // namespace

std::size_t PostsSource::KeyHash::operator()(const cw_verbs_key &key) const {
    return std::hash<std::string_view>{}(
        std::string_view(reinterpret_cast<const char *>(&key), sizeof(key)));
}

bool PostsSource::KeyEqual::operator()(const cw_verbs_key &a, const cw_verbs_key &b) const {
    return std::memcmp(&a, &b, sizeof(a)) == 0;
}

PostsSource::PostsSource(const SharedMaps &maps, PostsOptions options)
    : maps_(maps), options_(std::move(options)), skeleton_("post probes"),
      sites_(options_.forced, options_.spare_unused_ns) {}

PostsSource::~PostsSource() = default;

bool PostsSource::wants_device(std::string_view device) const {
    return options_.forced ||
           std::ranges::none_of(options_.devices, [device](const PostsDevice &known) {
               return known.name == device && known.counted_otherwise;
           });
}

bool PostsSource::wants_library(std::string_view path) const {
    const auto stem = stem_of_library(path);
    bool of_a_device = false;
    for (const PostsDevice &device : options_.devices) {
        if (stem_of_driver(device.driver) != stem)
            continue;
        if (wants_device(device.name))
            return true;
        of_a_device = true;
    }
    return !of_a_device && any_library_;
}

// Probes sit on a file, so they can be there before the first process that maps it: its first posts
// count. Which libraries those are is told by the devices of this machine.
void PostsSource::add_installed_libraries() {
    const auto paths = installed_providers();
    any_library_ = options_.devices.empty();
    for (const PostsDevice &device : options_.devices) {
        if (!wants_device(device.name))
            continue;
        bool found = false;
        for (const std::string &path : paths) {
            if (stem_of_library(path) != stem_of_driver(device.driver))
                continue;
            sites_.add_installed(path);
            found = true;
        }
        any_library_ = any_library_ || !found;
    }
}

Result<void> PostsSource::prepare() {
    if (!options_.forced && !options_.devices.empty() &&
        std::ranges::all_of(options_.devices, &PostsDevice::counted_otherwise)) {
        state_ = {CW_SOURCE_OFF, "the bytes of every device here are counted without probing "
                                 "programs; --posts=on does both"};
        return {};
    }
    const bool has_loop =
        !options_.bounded_walk && !asked_for_bounded_walk() &&
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
    auto loaded = load(!has_loop);
    if (!loaded && has_loop) {
        loop_refused_ = std::move(loaded).failure().message;
        loaded = load(true);
    }
    if (!loaded && options_.forced)
        return loaded;
    if (!loaded) {
        // Nobody asked for it by name: the rest of the recording goes on without.
        state_ = {CW_SOURCE_UNAVAILABLE, std::move(loaded).failure().message};
        return {};
    }
    add_installed_libraries();
    for (const pid_t pid : rdma_processes())
        look_at_process(pid);
    return {};
}

Result<void> PostsSource::load(bool bounded) {
    if (auto opened = skeleton_.open(); !opened)
        return opened;
    bpf_program__set_autoload(skeleton_->progs.post_send_bounded, bounded);
    bpf_program__set_autoload(skeleton_->progs.post_send_more, bounded);
    bpf_program__set_autoload(skeleton_->progs.post_send_loop, !bounded);
    skeleton_->rodata->filter_by_tgid = options_.filter_by_tgid;
    const auto slots = options_.max_slots != 0 ? options_.max_slots : DEFAULT_SLOTS;
    bpf_map__set_max_entries(skeleton_->maps.posts, slots);
    bpf_map__set_max_entries(skeleton_->maps.announced_qps, slots);
    bpf_map__set_max_entries(skeleton_->maps.batches,
                             std::max(slots / SLOTS_PER_BATCH, LEAST_BATCHES));
    if (auto loaded = skeleton_.load(maps_); !loaded)
        return loaded;
    if (!bounded)
        return {};
    const std::uint32_t slot = 0;
    const int more = bpf_program__fd(skeleton_->progs.post_send_more);
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.more_rounds), &slot, &more, BPF_ANY) != 0)
        return error(ErrorKind::Failed, fmt::format("post probes: a program that calls itself: {}",
                                                    std::strerror(errno)));
    return {};
}

Result<void> PostsSource::attach() {
    if (!skeleton_.is_loaded())
        return {};
    reader_.emplace(bpf_map__fd(skeleton_->maps.posts), sizeof(cw_slot_key), sizeof(cw_post_slot),
                    false);
    const auto &all = skeleton_->progs;
    PostsSites::Programs programs{};
    programs[CW_CALL_POST_SEND] =
        bpf_program__autoload(all.post_send_loop) ? all.post_send_loop : all.post_send_bounded;
    programs[CW_CALL_WR_ATOMIC] = all.wr_atomic;
    programs[CW_CALL_WR_LOCAL] = all.wr_local;
    programs[CW_CALL_WR_READ] = all.wr_read;
    programs[CW_CALL_WR_WRITE] = all.wr_write;
    programs[CW_CALL_WR_WRITE_IMM] = all.wr_write_imm;
    programs[CW_CALL_WR_SEND] = all.wr_send;
    programs[CW_CALL_WR_SEND_IMM] = all.wr_send_imm;
    programs[CW_CALL_WR_SEND_INV] = all.wr_send_inv;
    programs[CW_CALL_WR_SEND_TSO] = all.wr_send_tso;
    programs[CW_CALL_WR_ATOMIC_WRITE] = all.wr_atomic_write;
    programs[CW_CALL_WR_FLUSH] = all.wr_flush;
    programs[CW_CALL_SET_INLINE] = all.set_inline;
    programs[CW_CALL_SET_INLINE_LIST] = all.set_inline_list;
    programs[CW_CALL_SET_SGE] = all.set_sge;
    programs[CW_CALL_SET_SGE_LIST] = all.set_sge_list;
    programs[CW_CALL_WR_COMPLETE] = all.wr_complete;
    programs[CW_CALL_WR_ABORT] = all.wr_abort;
    sites_.attach(programs);
    attached_ = true;
    // Between prepare and now others may have begun to use RDMA.
    for (const pid_t pid : rdma_processes())
        look_at_process(pid);
    sites_.plan_is_told(); // with what the recorder writes of every source next
    return {};
}

std::vector<SourceState> PostsSource::states() const {
    if (!skeleton_.is_loaded() && !attached_)
        return {state_};
    const auto &problems = sites_.problems();
    if (problems.empty() && unresolved_qps_ == 0 && late_qps_ == 0 && loop_refused_.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason;
    if (!problems.empty()) {
        reason = problems.front();
        if (problems.size() > 1)
            reason += fmt::format(" (and {} more)", problems.size() - 1);
    } else if (!loop_refused_.empty()) {
        reason = fmt::format("the kernel refused the program that walks long chains, so chains of "
                             "more than 128 steps are counted as truncated: {}",
                             loop_refused_);
    } else if (late_qps_ != 0) {
        reason =
            fmt::format("{} queue pairs were there before the probes on their driver, which was "
                        "met with the first of them: their first posts may not be counted",
                        late_qps_);
    } else {
        reason = fmt::format("{} queue pairs whose driver could not be found in memory: their "
                             "posts are not counted",
                             unresolved_qps_);
    }
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

void PostsSource::look_at_process(pid_t pid) {
    ProcessView view{pid};
    if (!view.refresh())
        return;
    for (const Mapping &mapping : view.mappings())
        if (mapping.executable && is_provider_name(mapping.path) && wants_library(mapping.path))
            sites_.add_library(view, mapping);
    views_.insert_or_assign(pid, std::move(view));
}

bool PostsSource::look_at_qp(const PendingQp &qp) {
    auto [entry, is_new] = views_.try_emplace(qp.pid, qp.pid);
    ProcessView &view = entry->second;
    if (is_new && !view.refresh())
        return false;
    auto live = read_live_qp(view, qp.address);
    if (!live && !is_new) {
        // The library may have come since its mappings were read.
        if (!view.refresh())
            return false;
        live = read_live_qp(view, qp.address);
    }
    if (!live)
        return false;
    if (sites_.add_functions(view, live->functions, qp.created_ns) && qp.created_ns != 0)
        ++late_qps_;
    return true;
}

void PostsSource::on_record(const cw_header &header) {
    if (!attached_)
        return;
    if (header.kind == CW_KIND_VERBS_QP && header.length_bytes >= sizeof(cw_verbs_qp)) {
        cw_verbs_qp tie;
        std::memcpy(&tie, &header, sizeof(tie));
        ties_.insert_or_assign(tie.key, tie);
        return;
    }
    if ((header.kind != CW_KIND_QP_CREATE && header.kind != CW_KIND_QP_STATE &&
         header.kind != CW_KIND_QP_EXISTING && header.kind != CW_KIND_QP_DESTROY) ||
        header.length_bytes < sizeof(cw_qp_event))
        return;
    cw_qp_event event;
    std::memcpy(&event, &header, sizeof(event));
    if (header.kind == CW_KIND_QP_DESTROY) {
        if (event.result == 0) {
            resolved_.erase(event.key);
            std::erase_if(pending_, [&event](const PendingQp &qp) {
                return QpKeyEqual{}(qp.key, event.key);
            });
        }
        return;
    }
    const std::string device(event.device, strnlen(event.device, sizeof(event.device)));
    if (event.tgid == 0 || event.result != 0 || !wants_device(device))
        return;
    const auto pid = static_cast<pid_t>(event.tgid);
    // The tables of its libraries tell before the driver has filled in the queue pair.
    if (scanned_.emplace(pid, device).second)
        look_at_process(pid);
    if (event.user_handle == 0 || resolved_.contains(event.key))
        return;
    const auto waiting = std::ranges::find_if(pending_, [&](const PendingQp &qp) {
        return qp.pid == pid && qp.address == event.user_handle;
    });
    if (header.kind == CW_KIND_QP_CREATE) {
        // The driver has not filled it in yet. An address that is used again is another queue pair.
        const PendingQp created{event.key, pid, event.user_handle, 0, header.time_ns};
        if (waiting != pending_.end())
            *waiting = created;
        else if (pending_.size() < MAX_PENDING)
            pending_.push_back(created);
        return;
    }
    const PendingQp qp =
        waiting != pending_.end() ? *waiting : PendingQp{event.key, pid, event.user_handle, 0, 0};
    if (look_at_qp(qp)) {
        resolved_.emplace(event.key, pid);
        if (waiting != pending_.end())
            pending_.erase(waiting);
    } else if (waiting == pending_.end() && pending_.size() < MAX_PENDING) {
        pending_.push_back(qp);
    }
}

void PostsSource::retry_pending() {
    std::erase_if(pending_, [this](PendingQp &qp) {
        if (is_gone(qp.pid) || look_at_qp(qp))
            return true;
        if (++qp.tries < MAX_TRIES)
            return false;
        ++unresolved_qps_;
        return true;
    });
}

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

void PostsSource::sample(RecordSink &sink, bool everything) {
    if (!reader_)
        return;
    retry_pending();
    sites_.append_new(sink);
    const std::uint64_t now = monotonic_ns();
    if (everything)
        for (const auto &[key, tie] : ties_)
            sink.append(tie.header);
    KeyMap<Counted> all;
    // Sums of a part would be less than what was told before. The next sample has them.
    if (!read_counters(all))
        return;
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
void PostsSource::tie_unannounced(RecordSink &sink, const cw_verbs_key &key,
                                  std::uint64_t first_ns) {
    if (untied_.emplace(key, true).second)
        return;
    cw_verbs_qp tie = {};
    tie.header = {sizeof(tie), CW_KIND_VERBS_QP, CW_CPU_USERSPACE, first_ns};
    tie.key = key;
    const ProcessView view{static_cast<pid_t>(key.tgid)};
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

} // namespace collwire
