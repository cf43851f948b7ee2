// SPDX-License-Identifier: Apache-2.0
// Each rank's calls for one operation, with its sent and received bytes by connection.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/connection_times.h"
#include "correlate/nccl/link_meter.h"

namespace collwire::nccl {

struct Part {
    Index instance = NONE;
    Index link = NONE;
    Index connection = NONE; // in Gathered
    std::int32_t peer = -1;
    std::uint8_t channel = 0;
    bool is_send = false;
    OpShare share;
    OpTime time;
};

struct OperationCall {
    Index instance = NONE;
    Call call;
    std::uint32_t launch = NONE; // in its stream; NONE: no launch is known
};

// What a rank sent or received inside its node for the operation: local_traffic.h.
struct LocalPart {
    Index instance = NONE;
    LocalSend send;
};

class Parts {
public:
    explicit Parts(const model::Model &model);

    [[nodiscard]] std::vector<Part> of(const Operation &operation) const;
    [[nodiscard]] std::vector<LocalPart> local_of(const Operation &operation) const;
    // By rank.
    [[nodiscard]] std::vector<OperationCall> calls_of(const Operation &operation) const;

private:
    struct CallRef {
        Index operation;
        Index instance;
        std::uint32_t call;
        friend auto operator<=>(const CallRef &, const CallRef &) = default;
    };
    struct TaskRef {
        Index stream;
        std::uint32_t call;
        std::uint32_t replay; // 0 if not captured
        std::uint32_t launch;
        std::uint32_t task;
        friend auto operator<=>(const TaskRef &, const TaskRef &) = default;
    };

    struct TimedRef {
        Index stream;
        std::uint32_t launch;
        std::uint32_t op;
        OpTime time;
    };

    [[nodiscard]] std::span<const CallRef> calls_named_by(const Operation &operation) const;
    void find_tasks(const Instance &instance);
    void find_times(const model::Model &model);
    [[nodiscard]] OpTime time_of(Index stream, std::uint32_t launch, std::uint32_t op) const;
    void add_ops_of(const TaskRef &ref, std::vector<std::uint32_t> &into) const;
    void add_op(const CallRef &ref, std::uint32_t launch, std::uint32_t op,
                std::vector<Part> &parts) const;

    const NcclFacts &nccl_;
    std::vector<CallRef> calls_[2]; // of collectives, of p2p
    std::vector<TaskRef> tasks_;
    std::vector<std::vector<std::uint32_t>> ops_of_shapes_; // by task
    std::vector<TimedRef> times_;                           // with any known time
};

} // namespace collwire::nccl
