// SPDX-License-Identifier: Apache-2.0
// Calls and launches of one communicator's address. A training loop repeats its arguments, so each
// keeps 12 and 24 bytes and the place of the rest, which is kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "correlate/model/known.h"
#include "correlate/nccl/distinct_values.h"

namespace collwire::nccl {

struct Call {
    std::uint64_t time_ns = 0;
    std::uint64_t count = 0;
    std::uint64_t stream = 0;
    std::uint32_t arguments_hash = 0;
    std::uint32_t tid = 0;
    std::int32_t root = 0; // or peer
    std::int32_t reduction = 0;
    std::uint8_t func = 0;
    std::uint8_t datatype = 0;
    std::uint8_t flags = 0;  // enum cw_nccl_call_flags
    std::uint8_t result = 0; // if it returned: ncclResult_t
    friend bool operator==(const Call &, const Call &) = default;
};
[[nodiscard]] std::uint64_t hash_of(const Call &call);

struct Launch {
    std::uint64_t time_ns = 0;
    std::uint64_t plan = 0;
    std::uint64_t shape = 0;
    std::uint64_t launched = 0;
    std::uint32_t n_ops = 0;
    std::uint32_t first_task = 0; // in CommStream::tasks
    std::uint32_t tid = 0;
    std::uint16_t n_tasks = 0;
    std::uint8_t flags = 0;    // enum cw_nccl_launch_flags
    std::uint8_t channels = 0; // of its kernel plan; 0: not known
    // Filled by matching: its shape, in NcclFacts::shapes
    model::Index shape_index = model::NONE;
    std::uint32_t replay = 0; // of its kernel plan, from 0
    std::uint32_t order = 0;  // among all launches of its recording
    friend bool operator==(const Launch &, const Launch &) = default;
};
[[nodiscard]] std::uint64_t hash_of(const Launch &launch);

class CallList {
public:
    using value_type = Call;
    using const_iterator = ValueIterator<CallList>;

    void push_back(const Call &call);
    void set(std::size_t i, const Call &call);
    [[nodiscard]] Call operator[](std::size_t i) const {
        Call call = kinds_[kind_[i]];
        call.time_ns = time_ns_[i];
        return call;
    }
    [[nodiscard]] std::uint64_t time_ns(std::size_t i) const { return time_ns_[i]; }
    [[nodiscard]] std::size_t size() const { return time_ns_.size(); }
    [[nodiscard]] bool empty() const { return time_ns_.empty(); }
    [[nodiscard]] const_iterator begin() const { return {*this, 0}; }
    [[nodiscard]] const_iterator end() const { return {*this, size()}; }
    void clear();

    // By time. Equal ones that follow each other are kept once.
    void put_in_order();

private:
    [[nodiscard]] std::uint32_t kind_of(const Call &call);

    std::vector<std::uint64_t> time_ns_;
    std::vector<std::uint32_t> kind_;
    DistinctValues<Call> kinds_; // without the time
};

class LaunchList {
public:
    using value_type = Launch;
    using const_iterator = ValueIterator<LaunchList>;

    void push_back(const Launch &launch);
    void set(std::size_t i, const Launch &launch);
    [[nodiscard]] std::uint32_t order(std::size_t i) const { return order_[i]; }
    void set_order(std::size_t i, std::uint32_t order) { order_[i] = order; }
    [[nodiscard]] Launch operator[](std::size_t i) const {
        Launch launch = kinds_[kind_[i]];
        launch.time_ns = time_ns_[i];
        launch.launched |= launched_[i];
        launch.first_task = first_task_[i];
        launch.order = order_[i];
        launch.replay = replay_.empty() ? 0 : replay_[i];
        return launch;
    }
    [[nodiscard]] std::uint64_t time_ns(std::size_t i) const { return time_ns_[i]; }
    [[nodiscard]] std::size_t size() const { return time_ns_.size(); }
    [[nodiscard]] bool empty() const { return time_ns_.empty(); }
    [[nodiscard]] const_iterator begin() const { return {*this, 0}; }
    [[nodiscard]] const_iterator end() const { return {*this, size()}; }
    void clear();

    // By time, thread and plan. Equal ones that follow each other are kept once.
    void put_in_order();

private:
    [[nodiscard]] std::uint32_t kind_of(const Launch &launch);

    std::vector<std::uint64_t> time_ns_;
    std::vector<std::uint32_t> launched_; // the lower half
    std::vector<std::uint32_t> first_task_;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> replay_; // empty: none is of a graph
    std::vector<std::uint32_t> kind_;
    DistinctValues<Launch> kinds_; // without the others
};

} // namespace collwire::nccl
