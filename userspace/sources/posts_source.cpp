// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/posts_source.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"
#include "userspace/verbs/installed.h"
#include "userspace/verbs/live_verbs.h"
#include "verbs_post.skel.h"

namespace collwire::sources {
namespace {

constexpr std::uint32_t DEFAULT_SLOTS = 65536; // 12 MiB
// A queue pair takes some slots, of a table whose entries are small, and one batch of 1,264 bytes.
constexpr std::uint32_t SLOTS_PER_BATCH = 4;
constexpr std::uint32_t LEAST_BATCHES = 4096;
constexpr unsigned MAX_TRIES = 10;
constexpr std::size_t MAX_PENDING = 4096;

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

PostsSource::PostsSource(const loader::SharedMaps &maps, PostsOptions options)
    : maps_(maps), options_(std::move(options)), skeleton_("post probes"),
      sites_(options_.forced, options_.spare_unused_ns, options_.slices.on_ns != 0),
      schedule_(options_.slices) {}

PostsSource::~PostsSource() = default;

bool PostsSource::is_gone(pid_t pid) {
    return kill(pid, 0) != 0 && errno == ESRCH;
}

bool PostsSource::wants_device(std::string_view device) const {
    return options_.forced ||
           std::ranges::none_of(options_.devices, [device](const PostsDevice &known) {
               return known.name == device && known.counted_otherwise;
           });
}

bool PostsSource::wants_library(std::string_view path) const {
    const auto stem = verbs::stem_of_library(path);
    bool of_a_device = false;
    for (const PostsDevice &device : options_.devices) {
        if (verbs::stem_of_driver(device.driver) != stem)
            continue;
        if (wants_device(device.name))
            return true;
        of_a_device = true;
    }
    return !of_a_device && any_library_;
}

// Probes sit on a file, so they can be there before the first process that maps it: its first posts
// count. The devices of this machine show which libraries those are.
void PostsSource::add_installed_libraries() {
    const auto paths = verbs::installed_providers();
    any_library_ = options_.devices.empty();
    for (const PostsDevice &device : options_.devices) {
        if (!wants_device(device.name))
            continue;
        bool found = false;
        for (const std::string &path : paths) {
            if (verbs::stem_of_library(path) != verbs::stem_of_driver(device.driver))
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
        state_ = {CW_SOURCE_OFF, "not needed: the packets of every device here are counted. "
                                 "--posts=on counts posts as well"};
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
        // It was not asked for by name: the recording continues without it.
        state_ = {CW_SOURCE_UNAVAILABLE, std::move(loaded).failure().message};
        return {};
    }
    add_installed_libraries();
    for (const pid_t pid : process::rdma_processes())
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
    size_slice_maps();
    if (auto loaded = skeleton_.load(maps_); !loaded)
        return loaded;
    if (!bounded)
        return {};
    const std::uint32_t slot = 0;
    const int more = bpf_program__fd(skeleton_->progs.post_send_more);
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.more_rounds), &slot, &more, BPF_ANY) != 0)
        return error(ErrorKind::Failed,
                     fmt::format("post probes: tail call map: {}", std::strerror(errno)));
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
    for (const pid_t pid : process::rdma_processes())
        look_at_process(pid);
    sites_.probe_list_is_written(); // with what the recorder writes of every source next
    return {};
}

std::vector<source::SourceState> PostsSource::states() const {
    if (!skeleton_.is_loaded() && !attached_)
        return {state_};
    const auto &problems = sites_.problems();
    if (problems.empty() && unresolved_qps_ == 0 && late_qps_ == 0 && loop_refused_.empty() &&
        taken_off_.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason;
    if (!taken_off_.empty()) {
        reason = taken_off_;
    } else if (!problems.empty()) {
        reason = problems.front();
        if (problems.size() > 1)
            reason += fmt::format(" (and {} more)", problems.size() - 1);
    } else if (!loop_refused_.empty()) {
        reason = fmt::format("the kernel rejected bpf_loop: work request chains longer than 128 "
                             "steps are truncated: {}",
                             loop_refused_);
    } else if (late_qps_ != 0) {
        reason = fmt::format("{} queue pairs were created before their driver had probes: their "
                             "first posts may be missing",
                             late_qps_);
    } else {
        reason =
            fmt::format("{} queue pairs: driver not found in memory, their posts are not counted",
                        unresolved_qps_);
    }
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

std::vector<source::ProbeGroup> PostsSource::probe_groups() const {
    auto programs = sites_.programs();
    if (programs.empty())
        return {};
    return {{"probes", source::ProbeUse::Operations, std::move(programs)}};
}

void PostsSource::take_off(std::string_view, std::string reason) {
    if (counted_ == PostsCounted::Slice)
        end_slice();
    sites_.start_taking_off();
    taken_off_ = std::move(reason);
    pending_.clear();
}

std::set<std::uint32_t> PostsSource::recorded_processes() const {
    std::set<std::uint32_t> pids;
    for (const auto &[key, pid] : resolved_)
        pids.insert(static_cast<std::uint32_t>(pid));
    return pids;
}

void PostsSource::look_at_process(pid_t pid) {
    process::ProcessView view{pid};
    if (!view.refresh())
        return;
    for (const process::Mapping &mapping : view.mappings())
        if (mapping.executable && process::is_provider_name(mapping.path) &&
            wants_library(mapping.path))
            sites_.add_library(view, mapping);
    views_.insert_or_assign(pid, std::move(view));
}

bool PostsSource::look_at_qp(const PendingQp &qp) {
    auto [entry, is_new] = views_.try_emplace(qp.pid, qp.pid);
    process::ProcessView &view = entry->second;
    if (is_new && !view.refresh())
        return false;
    auto live = verbs::read_live_qp(view, qp.address);
    if (!live && !is_new) {
        // The library may have come since its mappings were read.
        if (!view.refresh())
            return false;
        live = verbs::read_live_qp(view, qp.address);
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
            owned_.erase(event.key);
            std::erase_if(pending_, [&event](const PendingQp &qp) {
                return QpKeyEqual{}(qp.key, event.key);
            });
        }
        return;
    }
    const std::string device(event.device, strnlen(event.device, sizeof(event.device)));
    if (event.tgid == 0 || event.result != 0 || !wants_device(device) || !taken_off_.empty())
        return;
    const auto pid = static_cast<pid_t>(event.tgid);
    note_owner(event);
    // Files are recognised by breakpoints, and a queue pair without a known owner is counted.
    if (counted_ == PostsCounted::Paused)
        follow_schedule();
    // The tables of its libraries show it before the driver has filled in the queue pair.
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

} // namespace collwire::sources
