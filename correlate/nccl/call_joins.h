// SPDX-License-Identifier: Apache-2.0
// The operation and the launch of each call of a stream. Most calls have one exact launch, and
// those of a communicator inside one node have none: what all calls have alike is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "correlate/model/known.h"

namespace collwire::nccl {

// Certainty of the operation that bytes belong to, weakest first, numbered as enum cw_rung.
enum class Rung : std::uint8_t {
    Process,  // only the process is known
    Inferred, // deduced from an order with several candidates, or from the other end
    Exact,    // read from NCCL's memory, or the only candidate in NCCL's order
};
inline constexpr std::size_t RUNGS = 3;

// The matched operation and launch of a call.
struct CallJoin {
    model::Index operation = model::NONE; // the first replay of a captured one
    std::uint32_t launch = model::NONE;   // the first
    std::uint32_t launches = 0;
    Rung rung = Rung::Process;
    friend bool operator==(const CallJoin &, const CallJoin &) = default;
};

class CallJoins {
public:
    explicit CallJoins(std::size_t n_calls = 0) : operation_(n_calls, model::NONE) {}

    [[nodiscard]] std::size_t size() const { return operation_.size(); }
    [[nodiscard]] model::Index operation(std::size_t call) const { return operation_[call]; }
    [[nodiscard]] std::uint32_t launch(std::size_t call) const {
        return launch_.empty() ? model::NONE : launch_[call];
    }
    [[nodiscard]] CallJoin operator[](std::size_t call) const {
        const std::uint32_t first = launch(call);
        const CallJoin usual = usual_of(first);
        return {operation_[call], first, launches_.empty() ? usual.launches : launches_[call],
                rung_.empty() ? usual.rung : rung_[call]};
    }
    void set(std::size_t call, const CallJoin &join) {
        const CallJoin usual = usual_of(join.launch);
        if (launches_.empty() && join.launches != usual.launches)
            keep_all(launches_, &CallJoin::launches);
        if (rung_.empty() && join.rung != usual.rung)
            keep_all(rung_, &CallJoin::rung);
        if (launch_.empty() && join.launch != model::NONE)
            keep_all(launch_, &CallJoin::launch);
        operation_[call] = join.operation;
        if (!launch_.empty())
            launch_[call] = join.launch;
        if (!launches_.empty())
            launches_[call] = join.launches;
        if (!rung_.empty())
            rung_[call] = join.rung;
    }

private:
    // Of a call with one exact launch, or without any.
    static CallJoin usual_of(std::uint32_t launch) {
        return launch == model::NONE ? CallJoin{} : CallJoin{model::NONE, launch, 1, Rung::Exact};
    }
    template <typename T> void keep_all(std::vector<T> &into, T CallJoin::*field) const {
        std::vector<T> all;
        all.reserve(size());
        for (std::size_t call = 0; call < size(); ++call)
            all.push_back((*this)[call].*field);
        into = std::move(all);
    }

    std::vector<model::Index> operation_;
    // Empty: the usual ones.
    std::vector<std::uint32_t> launch_;
    std::vector<std::uint32_t> launches_;
    std::vector<Rung> rung_;
};

} // namespace collwire::nccl
