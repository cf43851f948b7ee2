// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/programs/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace collwire::lab {
namespace {

// In every byte that no message may touch, and in every byte before a message arrives.
constexpr uint8_t sentinel = 0xa5;
constexpr uint32_t guard_bytes = 8;
constexpr uint32_t grh_bytes = 40; // written before the data of a UD message

// The responder's own data (what a READ fetches) differs from what the requester sends.
constexpr uint64_t responder_seed = 0x726573706f6e64U;

uint64_t word_at(std::span<const uint8_t> bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    return word;
}

uint64_t word_after(const Request &request) {
    if (request.operation == Operation::FetchAdd) {
        return request.atomic_start + request.atomic_add_or_compare;
    }
    return request.atomic_add_or_compare == request.atomic_start ? request.atomic_swap
                                                                 : request.atomic_start;
}

} // namespace

nlohmann::json RunOptions::to_json() const {
    nlohmann::json operations = nlohmann::json::array();
    for (const Operation operation : plan.operations) {
        operations.push_back(static_cast<int>(operation));
    }
    return {{"transport", static_cast<int>(plan.transport)},
            {"seed", plan.seed},
            {"batch", plan.batch},
            {"max_length_bytes", plan.max_length_bytes},
            {"max_inline_bytes", plan.max_inline_bytes},
            {"max_sges", plan.max_sges},
            {"uneven_lists", plan.uneven_lists},
            {"operations", operations},
            {"extended", style.extended},
            {"chain", style.chain},
            {"qps", qps},
            {"path_mtu_bytes", path_mtu_bytes},
            {"timeout_exponent", timeout_exponent},
            {"patience_s", patience_s}};
}

Result<RunOptions> RunOptions::from_json(const nlohmann::json &json) {
    RunOptions options;
    try {
        options.plan.transport = static_cast<Transport>(json.at("transport").get<int>());
        json.at("seed").get_to(options.plan.seed);
        json.at("batch").get_to(options.plan.batch);
        json.at("max_length_bytes").get_to(options.plan.max_length_bytes);
        json.at("max_inline_bytes").get_to(options.plan.max_inline_bytes);
        json.at("max_sges").get_to(options.plan.max_sges);
        json.at("uneven_lists").get_to(options.plan.uneven_lists);
        for (const auto &operation : json.at("operations")) {
            options.plan.operations.push_back(static_cast<Operation>(operation.get<int>()));
        }
        json.at("extended").get_to(options.style.extended);
        json.at("chain").get_to(options.style.chain);
        json.at("qps").get_to(options.qps);
        json.at("path_mtu_bytes").get_to(options.path_mtu_bytes);
        json.at("timeout_exponent").get_to(options.timeout_exponent);
        json.at("patience_s").get_to(options.patience_s);
    } catch (const nlohmann::json::exception &failure) {
        return error(ErrorKind::BadInput, fmt::format("the peer's options: {}", failure.what()));
    }
    return options;
}

Result<std::unique_ptr<Endpoint>> Endpoint::create(Device device, const RunOptions &options,
                                                   Role role) {
    std::unique_ptr<Endpoint> endpoint(new Endpoint(std::move(device), options, role));
    endpoint->path_mtu_ = endpoint->device_.active_mtu;
    while (options.path_mtu_bytes != 0 && endpoint->path_mtu_ > IBV_MTU_256 &&
           mtu_bytes(endpoint->path_mtu_) > options.path_mtu_bytes) {
        endpoint->path_mtu_ = static_cast<ibv_mtu>(endpoint->path_mtu_ - 1);
    }
    if (options.plan.transport == Transport::Ud) {
        // One packet a message; both ends have to plan alike, so the ends' MTUs must be the same.
        endpoint->options_.plan.max_length_bytes =
            std::min(options.plan.max_length_bytes, mtu_bytes(endpoint->path_mtu_));
    }
    endpoint->layout_ = SlotLayout::for_messages(endpoint->options_.plan.max_length_bytes);
    for (uint32_t index = 0; index < options.qps; index++) {
        if (auto created = endpoint->create_pair(index); !created) {
            return std::move(created).failure();
        }
    }
    return endpoint;
}

Result<void> Endpoint::create_pair(uint32_t index) {
    const uint32_t batch = options_.plan.batch;
    auto pair = std::make_unique<Pair>();
    pair->cq.reset(
        ibv_create_cq(device_.context.get(), static_cast<int>(batch) + 2, nullptr, nullptr, 0));
    if (!pair->cq) {
        return verbs_error("ibv_create_cq", device_, errno);
    }
    pair->memory.assign(std::size_t{layout_.stride_bytes} * (batch + 1), sentinel);
    pair->mr.reset(ibv_reg_mr(device_.pd.get(), pair->memory.data(), pair->memory.size(),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
    if (!pair->mr) {
        return verbs_error("ibv_reg_mr", device_, errno);
    }
    QpOptions qp_options;
    qp_options.transport = options_.plan.transport;
    qp_options.extended = options_.style.extended && role_ == Role::Requester;
    // Aborted requests take no room, but a chain is built after the posted requests.
    qp_options.send_wrs = batch + options_.style.chain + 1;
    qp_options.receive_wrs = batch + 1;
    qp_options.sges = options_.plan.max_sges;
    qp_options.inline_bytes = options_.plan.max_inline_bytes;
    auto qp = create_qp(device_, pair->cq.get(), pair->cq.get(), qp_options);
    if (!qp) {
        return std::move(qp).failure();
    }
    pair->qp = std::move(qp).value();
    pair->psn = static_cast<uint32_t>(pattern_key(options_.plan.seed, index, 0, 0)) & 0xffffffU;
    pair->target.qp = pair->qp.get();
    // Atomics need words of 8 B: the slots begin at a multiple of 64 within the memory.
    pair->target.local_base = (reinterpret_cast<uint64_t>(pair->memory.data()) + 63) / 64 * 64;
    pair->target.lkey = pair->mr->lkey;
    pair->target.layout = layout_;
    pairs_.push_back(std::move(pair));
    return {};
}

nlohmann::json Endpoint::addresses() const {
    nlohmann::json list = nlohmann::json::array();
    for (const auto &pair : pairs_) {
        list.push_back({{"qpn", pair->qp->qp_num},
                        {"psn", pair->psn},
                        {"gid", gid_text(device_.gid)},
                        {"base", pair->target.local_base},
                        {"rkey", pair->mr->rkey}});
    }
    return list;
}

Result<void> Endpoint::connect(const nlohmann::json &peer_addresses) {
    if (peer_addresses.size() != pairs_.size()) {
        return error(ErrorKind::BadInput, fmt::format("the peer has {} queue pairs, not {}",
                                                      peer_addresses.size(), pairs_.size()));
    }
    for (std::size_t index = 0; index < pairs_.size(); index++) {
        Pair &pair = *pairs_[index];
        try {
            const auto &peer = peer_addresses.at(index);
            peer.at("qpn").get_to(pair.remote.qpn);
            peer.at("psn").get_to(pair.remote.psn);
            peer.at("base").get_to(pair.target.remote_base);
            peer.at("rkey").get_to(pair.target.rkey);
            if (!parse_gid(peer.at("gid").get<std::string>(), pair.remote.gid)) {
                return error(ErrorKind::BadInput, "the peer sent no valid GID");
            }
        } catch (const nlohmann::json::exception &failure) {
            return error(ErrorKind::BadInput,
                         fmt::format("the peer's addresses: {}", failure.what()));
        }
        QpOptions qp_options;
        qp_options.transport = options_.plan.transport;
        qp_options.timeout_exponent = options_.timeout_exponent;
        auto connected =
            connect_qp(device_, pair.qp.get(), qp_options, pair.psn, pair.remote, path_mtu_);
        if (!connected) {
            return connected;
        }
        if (options_.plan.transport == Transport::Ud) {
            auto address = create_address(device_, pair.remote.gid);
            if (!address) {
                return std::move(address).failure();
            }
            pair.address = std::move(address).value();
            pair.target.address = pair.address.get();
            pair.target.remote_qpn = pair.remote.qpn;
        }
    }
    return {};
}

std::span<uint8_t> Endpoint::slot_bytes(const Pair &pair, uint32_t slot,
                                        uint32_t length_bytes) const {
    return {reinterpret_cast<uint8_t *>(layout_.data_at(pair.target.local_base, slot)),
            length_bytes};
}

Result<void> Endpoint::prepare(uint64_t round) {
    for (uint32_t index = 0; index < pairs_.size(); index++) {
        Pair &pair = *pairs_[index];
        pair.requests = plan_round(options_.plan, index, round);
        for (uint32_t slot = 0; slot < pair.requests.size(); slot++) {
            const Request &request = pair.requests[slot];
            std::ranges::fill(slot_bytes(pair, slot, request.length_bytes + guard_bytes), sentinel);
            const auto data = slot_bytes(pair, slot, request.length_bytes);
            if (request.operation == Operation::Read) {
                fill_pattern(data,
                             pattern_key(options_.plan.seed ^ responder_seed, index, round, slot));
            } else if (is_atomic(request.operation)) {
                std::memcpy(data.data(), &request.atomic_start, sizeof(request.atomic_start));
            }
            if (!takes_receive(request.operation)) {
                continue;
            }
            const bool ud = options_.plan.transport == Transport::Ud;
            ibv_sge sge{};
            sge.addr = layout_.data_at(pair.target.local_base, slot) - (ud ? grh_bytes : 0);
            sge.length = options_.plan.max_length_bytes + (ud ? grh_bytes : 0);
            sge.lkey = pair.target.lkey;
            ibv_recv_wr wr{};
            wr.wr_id = slot;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            ibv_recv_wr *bad = nullptr;
            if (const int failed = ibv_post_recv(pair.qp.get(), &wr, &bad); failed != 0) {
                return verbs_error("ibv_post_recv", device_, failed);
            }
        }
    }
    return {};
}

Result<uint32_t> Endpoint::wait_completions(Pair &pair, uint32_t wanted,
                                            std::vector<ibv_wc> &completions) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(options_.patience_s);
    while (completions.size() < wanted) {
        ibv_wc completion{};
        const int got = ibv_poll_cq(pair.cq.get(), 1, &completion);
        if (got < 0) {
            return error(ErrorKind::Failed, "ibv_poll_cq failed");
        }
        if (got == 0) {
            if (std::chrono::steady_clock::now() > deadline) {
                break;
            }
            // One core has to run the transport as well.
            (void)::usleep(50);
            continue;
        }
        if (completion.status != IBV_WC_SUCCESS) {
            return error(ErrorKind::Failed,
                         fmt::format("queue pair {}: work request {} ended with: {}",
                                     pair.qp->qp_num, completion.wr_id,
                                     ibv_wc_status_str(completion.status)));
        }
        completions.push_back(completion);
    }
    return static_cast<uint32_t>(completions.size());
}

void Endpoint::verify_receives(Pair &pair, const std::vector<ibv_wc> &completions) {
    for (const ibv_wc &completion : completions) {
        const Request &request = pair.requests[completion.wr_id];
        const bool ud = options_.plan.transport == Transport::Ud;
        const uint32_t header = ud ? grh_bytes : 0;
        const bool has_immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
        const bool wants_immediate = request.operation != Operation::Send;
        const bool good = has_immediate == wants_immediate &&
                          (!has_immediate || ntohl(completion.imm_data) == request.immediate) &&
                          (request.operation == Operation::WriteImm ||
                           completion.byte_len == request.length_bytes + header);
        pair.mismatches += good ? 0 : 1;
    }
}

bool Endpoint::slot_as_expected(const Pair &pair, uint32_t index, uint64_t round,
                                uint32_t slot) const {
    const Request &request = pair.requests[slot];
    const auto data = slot_bytes(pair, slot, request.length_bytes);
    const auto guard =
        slot_bytes(pair, slot, request.length_bytes + guard_bytes).subspan(request.length_bytes);
    if (!std::ranges::all_of(guard, [](uint8_t byte) { return byte == sentinel; })) {
        return false;
    }
    if (is_atomic(request.operation)) {
        return word_at(data) ==
               (role_ == Role::Responder ? word_after(request) : request.atomic_start);
    }
    const bool from_responder = request.operation == Operation::Read;
    const uint64_t seed = options_.plan.seed ^ (from_responder ? responder_seed : 0);
    return matches_pattern(data, pattern_key(seed, index, round, slot));
}

Result<void> Endpoint::verify_memory(Pair &pair, uint32_t index, uint64_t round) {
    // The responder gets no event for a plain UC WRITE: it polls the data until it is there or the
    // time is over.
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(options_.patience_s);
    for (uint32_t slot = 0; slot < pair.requests.size(); slot++) {
        while (!slot_as_expected(pair, index, round, slot)) {
            const bool may_be_late =
                options_.plan.transport == Transport::Uc && role_ == Role::Responder;
            if (!may_be_late || std::chrono::steady_clock::now() > deadline) {
                pair.mismatches++;
                break;
            }
            (void)::usleep(50);
        }
    }
    return {};
}

Result<void> Endpoint::verify(uint64_t round) {
    for (uint32_t index = 0; index < pairs_.size(); index++) {
        Pair &pair = *pairs_[index];
        const auto wanted =
            static_cast<uint32_t>(std::ranges::count_if(pair.requests, [](const Request &request) {
                return takes_receive(request.operation);
            }));
        std::vector<ibv_wc> completions;
        auto got = wait_completions(pair, wanted, completions);
        if (!got) {
            return std::move(got).failure();
        }
        pair.missing += wanted - *got;
        verify_receives(pair, completions);
        if (auto verified = verify_memory(pair, index, round); !verified) {
            return verified;
        }
        pair.rounds++;
    }
    return {};
}

Result<void> Endpoint::post(uint64_t round) {
    for (uint32_t index = 0; index < pairs_.size(); index++) {
        Pair &pair = *pairs_[index];
        pair.requests = plan_round(options_.plan, index, round);
        for (uint32_t slot = 0; slot < pair.requests.size(); slot++) {
            const Request &request = pair.requests[slot];
            std::ranges::fill(slot_bytes(pair, slot, request.length_bytes + guard_bytes), sentinel);
            if (sends_data(request.operation)) {
                fill_pattern(slot_bytes(pair, slot, request.length_bytes),
                             pattern_key(options_.plan.seed, index, round, slot));
            }
        }
        auto posted = post_round(pair.target, pair.requests, options_.style, pair.posted[phase_]);
        if (!posted) {
            return posted;
        }
    }
    return {};
}

Result<void> Endpoint::complete(uint64_t round) {
    for (uint32_t index = 0; index < pairs_.size(); index++) {
        Pair &pair = *pairs_[index];
        std::vector<ibv_wc> completions;
        auto got = wait_completions(pair, 1, completions);
        if (!got) {
            return std::move(got).failure();
        }
        if (*got != 1 || completions[0].wr_id + 1 != pair.requests.size()) {
            return error(ErrorKind::Failed,
                         fmt::format("queue pair {}: round {} did not complete in {} s",
                                     pair.qp->qp_num, round, options_.patience_s));
        }
        if (auto verified = verify_memory(pair, index, round); !verified) {
            return verified;
        }
        pair.rounds++;
    }
    return {};
}

uint64_t Endpoint::mismatches() const {
    uint64_t sum = 0;
    for (const auto &pair : pairs_) {
        sum += pair->mismatches + pair->missing;
    }
    return sum;
}

nlohmann::json Endpoint::report() const {
    nlohmann::json list = nlohmann::json::array();
    for (const auto &pair : pairs_) {
        PostCounts total;
        nlohmann::json phases = nlohmann::json::object();
        for (const auto &[name, counts] : pair->posted) {
            phases[name] = counts;
            total.add(counts);
        }
        list.push_back({{"qpn", pair->qp->qp_num},
                        {"psn", pair->psn},
                        {"local_gid", gid_text(device_.gid)},
                        {"remote_qpn", pair->remote.qpn},
                        {"remote_psn", pair->remote.psn},
                        {"remote_gid", gid_text(pair->remote.gid)},
                        {"rounds", pair->rounds},
                        {"posted", total},
                        {"phases", phases},
                        {"mismatches", pair->mismatches},
                        {"missing_messages", pair->missing}});
    }
    return {{"device", device_.name},
            {"port", device_.port},
            {"pid", ::getpid()},
            {"path_mtu_bytes", mtu_bytes(path_mtu_)},
            {"qps", list}};
}

} // namespace collwire::lab
