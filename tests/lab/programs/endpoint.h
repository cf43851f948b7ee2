// SPDX-License-Identifier: Apache-2.0
// One end of a traffic run: its queue pairs, buffers and completion queues, and the check of every
// byte that arrived.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/lab/programs/poster.h"
#include "tests/lab/programs/traffic_plan.h"
#include "tests/lab/programs/verbs.h"

namespace collwire::lab {

struct RunOptions {
    PlanOptions plan;
    PostStyle style;
    uint32_t qps = 1;
    uint32_t path_mtu_bytes = 0; // 0: the port's
    uint8_t timeout_exponent = 16;
    uint32_t patience_s = 20; // for a completion, or for the data of a UC or UD message

    [[nodiscard]] nlohmann::json to_json() const;
    static Result<RunOptions> from_json(const nlohmann::json &json);
};

enum class Role { Requester, Responder };

class Endpoint {
public:
    static Result<std::unique_ptr<Endpoint>> create(Device device, const RunOptions &options,
                                                    Role role);

    // What the peer needs, and what the peer sent of its own.
    [[nodiscard]] nlohmann::json addresses() const;
    Result<void> connect(const nlohmann::json &peer_addresses);

    // The responder's part before and after a round, the requester's part in it. A mismatch is
    // counted, not an error.
    Result<void> prepare(uint64_t round);
    Result<void> verify(uint64_t round);
    Result<void> post(uint64_t round);
    Result<void> complete(uint64_t round);

    // From here on, what is posted is counted under this name.
    void set_phase(const std::string &phase) { phase_ = phase; }

    [[nodiscard]] nlohmann::json report() const;
    [[nodiscard]] uint64_t mismatches() const;

private:
    struct Pair {
        CqPtr cq; // destroyed after the QP: members are destroyed last to first
        std::vector<uint8_t> memory;
        MrPtr mr;
        AhPtr address;
        QpPtr qp;
        uint32_t psn = 0;
        QpAddress remote;
        PostTarget target;
        std::vector<Request> requests;
        std::map<std::string, PostCounts> posted;
        uint64_t rounds = 0;
        uint64_t mismatches = 0;
        uint64_t missing = 0; // messages that did not arrive in time (UC, UD)
    };

    Endpoint(Device device, const RunOptions &options, Role role)
        : device_(std::move(device)), options_(options), role_(role) {}
    Result<void> create_pair(uint32_t index);
    Result<uint32_t> wait_completions(Pair &pair, uint32_t wanted,
                                      std::vector<ibv_wc> &completions);
    void verify_receives(Pair &pair, const std::vector<ibv_wc> &completions);
    Result<void> verify_memory(Pair &pair, uint32_t index, uint64_t round);
    bool slot_as_expected(const Pair &pair, uint32_t index, uint64_t round, uint32_t slot) const;
    std::span<uint8_t> slot_bytes(const Pair &pair, uint32_t slot, uint32_t length_bytes) const;

    Device device_;
    RunOptions options_;
    Role role_;
    ibv_mtu path_mtu_ = IBV_MTU_1024;
    SlotLayout layout_;
    std::string phase_ = "before_go";
    std::vector<std::unique_ptr<Pair>> pairs_;
};

} // namespace collwire::lab
