// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/shared_maps.h"

#include <cstring>

#include <bpf/bpf.h>

#include "collwire/loss_records.h"
#include "shared.skel.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/map_reader.h"

namespace collwire::loader {

SharedMaps::SharedMaps(shared *skeleton) : skeleton_(skeleton) {
    events_fd_ = bpf_map__fd(skeleton->maps.events);
    bulk_events_fd_ = bpf_map__fd(skeleton->maps.bulk_events);
    losses_fd_ = bpf_map__fd(skeleton->maps.losses);
    live_qps_fd_ = bpf_map__fd(skeleton->maps.live_qps);
    post_epochs_fd_ = bpf_map__fd(skeleton->maps.post_epochs);
    tgid_filter_fd_ = bpf_map__fd(skeleton->maps.tgid_filter);
    held_fd_ = bpf_map__fd(skeleton->maps.held);
}

SharedMaps::~SharedMaps() {
    shared::destroy(skeleton_);
}

Result<std::unique_ptr<SharedMaps>> SharedMaps::create(const SharedMapOptions &options) {
    const LibbpfLog log;
    shared *skeleton = shared::open();
    if (skeleton == nullptr)
        return bpf_error("shared maps: open", errno, log.text());
    int failed = bpf_map__set_max_entries(skeleton->maps.events, options.ring_bytes);
    if (failed == 0)
        failed = bpf_map__set_max_entries(skeleton->maps.live_qps, options.max_live_qps);
    // libbpf raises RLIMIT_MEMLOCK by itself if the kernel still counts against it (< 5.11).
    if (failed == 0)
        failed = shared::load(skeleton);
    if (failed != 0) {
        shared::destroy(skeleton);
        return bpf_error("shared maps", failed, log.text());
    }
    return std::unique_ptr<SharedMaps>(new SharedMaps(skeleton));
}

Result<void> SharedMaps::give_to(bpf_object *object) const {
    const LibbpfLog log;
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
        // Each object has its own .rodata.
        if (bpf_map__is_internal(map))
            continue;
        bpf_map *theirs = bpf_object__find_map_by_name(object, bpf_map__name(map));
        if (theirs == nullptr)
            continue;
        if (const int failed = bpf_map__reuse_fd(theirs, bpf_map__fd(map)); failed != 0)
            return bpf_error(std::string("shared map ") + bpf_map__name(map), failed, log.text());
    }
    return {};
}

Result<void> SharedMaps::want_tgid(std::uint32_t tgid) const {
    const std::uint8_t yes = 1;
    if (const int failed = bpf_map_update_elem(tgid_filter_fd_, &tgid, &yes, BPF_ANY); failed != 0)
        return bpf_error("process filter", failed, {});
    return {};
}

Result<void> SharedMaps::hold(cw_hold state) const {
    const std::uint32_t zero = 0;
    const std::uint64_t value = state;
    if (const int failed = bpf_map_update_elem(held_fd_, &zero, &value, BPF_ANY); failed != 0)
        return bpf_error("switching counting on or off", failed, {});
    return {};
}

cw_hold SharedMaps::held() const {
    const std::uint32_t zero = 0;
    std::uint64_t value = CW_NOT_HELD;
    (void)bpf_map_lookup_elem(held_fd_, &zero, &value);
    return static_cast<cw_hold>(value);
}

void SharedMaps::discard_events() const {
    const auto drop = [](void *, void *, std::size_t) { return 0; };
    ring_buffer *ring = ring_buffer__new(events_fd_, drop, nullptr, nullptr);
    if (ring == nullptr)
        return;
    (void)ring_buffer__consume(ring);
    ring_buffer__free(ring);
}

std::vector<source::LossCount> SharedMaps::losses() const {
    std::vector<source::LossCount> counts;
    const int n_cpus = libbpf_num_possible_cpus();
    if (n_cpus <= 0)
        return counts;
    // The kernel pads each CPU's value to a multiple of 8 bytes; this struct is one already.
    std::vector<cw_losses> per_cpu(static_cast<std::size_t>(n_cpus));
    const std::uint32_t zero = 0;
    if (bpf_map_lookup_elem(losses_fd_, &zero, per_cpu.data()) != 0)
        return counts;
    for (std::size_t cpu = 0; cpu < per_cpu.size(); ++cpu)
        for (unsigned loss_class = 0; loss_class < CW_LOSS_CLASSES; ++loss_class)
            if (const auto records = per_cpu[cpu].records[loss_class]; records != 0)
                counts.push_back({static_cast<cw_loss_class>(loss_class),
                                  static_cast<std::uint16_t>(cpu), records});
    return counts;
}

std::optional<std::vector<cw_live_qp>> SharedMaps::live_qps() const {
    std::vector<cw_live_qp> all;
    MapReader reader(live_qps_fd_, sizeof(std::uint64_t), sizeof(cw_live_qp), false);
    const bool complete =
        reader.for_each([&all](std::span<const std::byte>, std::span<const std::byte> value) {
            std::memcpy(&all.emplace_back(), value.data(), sizeof(cw_live_qp));
        });
    return complete ? std::optional(std::move(all)) : std::nullopt;
}

} // namespace collwire::loader
