// SPDX-License-Identifier: Apache-2.0
// The maps that all BPF objects share: created once, then passed to every object before it loads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <bpf/libbpf.h>

#include "base/result.h"
#include "collwire/tables.h"
#include "userspace/source/source.h"

struct shared; // the skeleton of bpf/shared.bpf.c

namespace collwire::loader {

struct SharedMapOptions {
    std::uint32_t ring_bytes = 8u << 20; // a power of two and a multiple of the page size
    std::uint32_t max_live_qps = 65536;
};

class SharedMaps {
public:
    // Errors: not permitted, no BTF, out of memory.
    static Result<std::unique_ptr<SharedMaps>> create(const SharedMapOptions &options);
    SharedMaps(const SharedMaps &) = delete;
    SharedMaps &operator=(const SharedMaps &) = delete;
    ~SharedMaps();

    // Replaces every map of `object` that has the name of a shared one by the shared one. Call it
    // between open and load.
    Result<void> give_to(bpf_object *object) const;

    [[nodiscard]] int events_fd() const { return events_fd_; }
    [[nodiscard]] int bulk_events_fd() const { return bulk_events_fd_; }
    [[nodiscard]] int live_qps_fd() const { return live_qps_fd_; }
    // Live queue pairs; one may be listed twice. Nothing: the kernel returned only a part.
    [[nodiscard]] std::optional<std::vector<cw_live_qp>> live_qps() const;
    [[nodiscard]] int post_epochs_fd() const { return post_epochs_fd_; }

    // Adds a thread group to the recorded ones, if the programs filter by thread group.
    Result<void> want_tgid(std::uint32_t tgid) const;

    // Opens the gate if CW_NOT_HELD; initial state of the programs.
    Result<void> hold(cw_hold state) const;
    [[nodiscard]] cw_hold held() const;

    // Drops every unread event: a program that emitted them cannot be trusted.
    void discard_events() const;

    // All counts of the loss table above 0, cumulative.
    [[nodiscard]] std::vector<source::LossCount> losses() const;

private:
    explicit SharedMaps(shared *skeleton);
    shared *skeleton_;
    int events_fd_ = -1;
    int bulk_events_fd_ = -1;
    int losses_fd_ = -1;
    int live_qps_fd_ = -1;
    int post_epochs_fd_ = -1;
    int tgid_filter_fd_ = -1;
    int held_fd_ = -1;
};

} // namespace collwire::loader
