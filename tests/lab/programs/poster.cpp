// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/programs/poster.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

#include "tests/lab/programs/verbs.h"

namespace collwire::lab {
namespace {

struct Piece {
    uint64_t at;
    uint32_t length_bytes;
};

std::vector<Piece> pieces_of(const Request &request, uint64_t data) {
    if (request.form == DataForm::Nothing) {
        return {};
    }
    if (request.piece_bytes.empty()) {
        return {{data, request.length_bytes}};
    }
    std::vector<Piece> pieces;
    for (const uint32_t length : request.piece_bytes) {
        pieces.push_back({data, length});
        data += length;
    }
    return pieces;
}

bool is_inline(const Request &request) {
    return request.form == DataForm::Inline || request.form == DataForm::InlineList;
}

unsigned int signal_flag(std::span<const Request> requests, uint32_t slot) {
    if (slot + 1 == requests.size()) {
        return IBV_SEND_SIGNALED;
    }
    return 0;
}

void count(const Request &request, PostCounts &counts) {
    ClassCount &of_class = counts.classes[class_name(request.operation)];
    of_class.wrs++;
    of_class.bytes += request.length_bytes;
    of_class.zero_length_wrs += request.length_bytes == 0 ? 1 : 0;
}

ibv_wr_opcode opcode(Operation operation) {
    switch (operation) {
    case Operation::Send:
        return IBV_WR_SEND;
    case Operation::SendImm:
        return IBV_WR_SEND_WITH_IMM;
    case Operation::Write:
        return IBV_WR_RDMA_WRITE;
    case Operation::WriteImm:
        return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Operation::Read:
        return IBV_WR_RDMA_READ;
    case Operation::FetchAdd:
        return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Operation::CompareSwap:
        return IBV_WR_ATOMIC_CMP_AND_SWP;
    }
    return IBV_WR_SEND;
}

Error post_error(const char *verb, int errno_value) {
    return error(ErrorKind::Failed, fmt::format("{}: {}", verb, std::strerror(errno_value)));
}

// One call of ibv_post_send for requests [first, first + n).
Result<void> post_chain(const PostTarget &target, std::span<const Request> requests, uint32_t first,
                        uint32_t n, bool refuse, PostCounts &counts) {
    std::vector<ibv_send_wr> chain(n + (refuse ? 1 : 0));
    std::vector<std::vector<ibv_sge>> sges(chain.size());
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t slot = first + i;
        const Request &request = requests[slot];
        for (const Piece &piece :
             pieces_of(request, target.layout.data_at(target.local_base, slot))) {
            sges[i].push_back({piece.at, piece.length_bytes, target.lkey});
        }
        ibv_send_wr &wr = chain[i];
        wr.wr_id = slot;
        wr.next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
        wr.sg_list = sges[i].empty() ? nullptr : sges[i].data();
        wr.num_sge = static_cast<int>(sges[i].size());
        wr.opcode = opcode(request.operation);
        wr.send_flags = signal_flag(requests, slot);
        if (is_inline(request)) {
            wr.send_flags |= IBV_SEND_INLINE;
        }
        wr.imm_data = htonl(request.immediate);
        const uint64_t remote = target.layout.data_at(target.remote_base, slot);
        if (is_atomic(request.operation)) {
            wr.wr.atomic.remote_addr = remote;
            wr.wr.atomic.rkey = target.rkey;
            wr.wr.atomic.compare_add = request.atomic_add_or_compare;
            wr.wr.atomic.swap = request.atomic_swap;
        } else if (target.address != nullptr) {
            wr.wr.ud.ah = target.address;
            wr.wr.ud.remote_qpn = target.remote_qpn;
            wr.wr.ud.remote_qkey = ud_qkey;
        } else {
            wr.wr.rdma.remote_addr = remote;
            wr.wr.rdma.rkey = target.rkey;
        }
        count(request, counts);
    }
    if (refuse) {
        // More elements than any provider has room for: refused by the provider itself, after the
        // requests before it.
        sges[n].assign(4096, {target.layout.data_at(target.local_base, 0), 1, target.lkey});
        chain[n].sg_list = sges[n].data();
        chain[n].num_sge = static_cast<int>(sges[n].size());
        chain[n].opcode = IBV_WR_SEND;
        if (target.address != nullptr) {
            chain[n].wr.ud.ah = target.address;
        }
    }
    ibv_send_wr *bad = nullptr;
    const int failed = ibv_post_send(target.qp, chain.data(), &bad);
    counts.post_calls++;
    if (!refuse) {
        return failed == 0 ? Result<void>{} : Result<void>{post_error("ibv_post_send", failed)};
    }
    if (failed == 0 || bad != &chain[n]) {
        return error(ErrorKind::Failed,
                     "ibv_post_send did not refuse the request that it has to refuse");
    }
    counts.refused_wrs++;
    return {};
}

void build_extended(const PostTarget &target, std::span<const Request> requests, uint32_t slot) {
    ibv_qp_ex *qp = ibv_qp_to_qp_ex(target.qp);
    const Request &request = requests[slot];
    const uint64_t remote = target.layout.data_at(target.remote_base, slot);
    qp->wr_id = slot;
    qp->wr_flags = signal_flag(requests, slot);
    if (is_inline(request)) {
        qp->wr_flags |=
            IBV_SEND_INLINE; // rxe sends what set_inline_data() stored only if this says so
    }
    switch (request.operation) {
    case Operation::Send:
        ibv_wr_send(qp);
        break;
    case Operation::SendImm:
        ibv_wr_send_imm(qp, htonl(request.immediate));
        break;
    case Operation::Write:
        ibv_wr_rdma_write(qp, target.rkey, remote);
        break;
    case Operation::WriteImm:
        ibv_wr_rdma_write_imm(qp, target.rkey, remote, htonl(request.immediate));
        break;
    case Operation::Read:
        ibv_wr_rdma_read(qp, target.rkey, remote);
        break;
    case Operation::FetchAdd:
        ibv_wr_atomic_fetch_add(qp, target.rkey, remote, request.atomic_add_or_compare);
        break;
    case Operation::CompareSwap:
        ibv_wr_atomic_cmp_swp(qp, target.rkey, remote, request.atomic_add_or_compare,
                              request.atomic_swap);
        break;
    }
    if (target.address != nullptr) {
        ibv_wr_set_ud_addr(qp, target.address, target.remote_qpn, ud_qkey);
    }
    const std::vector<Piece> pieces =
        pieces_of(request, target.layout.data_at(target.local_base, slot));
    switch (request.form) {
    case DataForm::Nothing:
        ibv_wr_set_sge_list(qp, 0, nullptr);
        break;
    case DataForm::OneSge:
        ibv_wr_set_sge(qp, target.lkey, pieces[0].at, pieces[0].length_bytes);
        break;
    case DataForm::SgeList: {
        std::vector<ibv_sge> list;
        for (const Piece &piece : pieces) {
            list.push_back({piece.at, piece.length_bytes, target.lkey});
        }
        ibv_wr_set_sge_list(qp, list.size(), list.data());
        break;
    }
    case DataForm::Inline:
        ibv_wr_set_inline_data(qp, reinterpret_cast<void *>(pieces[0].at), pieces[0].length_bytes);
        break;
    case DataForm::InlineList: {
        std::vector<ibv_data_buf> list;
        for (const Piece &piece : pieces) {
            list.push_back({reinterpret_cast<void *>(piece.at), piece.length_bytes});
        }
        ibv_wr_set_inline_data_list(qp, list.size(), list.data());
        break;
    }
    }
}

// One ibv_wr_start ... ibv_wr_complete for requests [first, first + n).
Result<void> post_extended(const PostTarget &target, std::span<const Request> requests,
                           uint32_t first, uint32_t n, bool abort_first, PostCounts &counts) {
    ibv_qp_ex *qp = ibv_qp_to_qp_ex(target.qp);
    if (abort_first) {
        ibv_wr_start(qp);
        for (uint32_t slot = first; slot < first + n; slot++) {
            build_extended(target, requests, slot);
        }
        ibv_wr_abort(qp);
        counts.aborted_wrs += n;
    }
    ibv_wr_start(qp);
    for (uint32_t slot = first; slot < first + n; slot++) {
        build_extended(target, requests, slot);
        count(requests[slot], counts);
    }
    counts.post_calls++;
    const int failed = ibv_wr_complete(qp);
    return failed == 0 ? Result<void>{} : Result<void>{post_error("ibv_wr_complete", failed)};
}

bool due(uint64_t calls, uint32_t every) {
    return every > 0 && calls % every == every - 1;
}

} // namespace

void PostCounts::add(const PostCounts &other) {
    for (const auto &[name, of_class] : other.classes) {
        classes[name].wrs += of_class.wrs;
        classes[name].bytes += of_class.bytes;
        classes[name].zero_length_wrs += of_class.zero_length_wrs;
    }
    post_calls += other.post_calls;
    aborted_wrs += other.aborted_wrs;
    refused_wrs += other.refused_wrs;
}

void to_json(nlohmann::json &json, const PostCounts &counts) {
    json = {{"post_calls", counts.post_calls},
            {"aborted_wrs", counts.aborted_wrs},
            {"refused_wrs", counts.refused_wrs},
            {"classes", nlohmann::json::object()}};
    for (const auto &[name, of_class] : counts.classes) {
        json["classes"][name] = {{"wrs", of_class.wrs},
                                 {"bytes", of_class.bytes},
                                 {"zero_length_wrs", of_class.zero_length_wrs}};
    }
}

SlotLayout SlotLayout::for_messages(uint32_t max_length_bytes) {
    constexpr uint32_t line_bytes = 64;
    const uint32_t with_guard = max_length_bytes + headroom_bytes + line_bytes;
    return {(with_guard + line_bytes - 1) / line_bytes * line_bytes};
}

Result<void> post_round(const PostTarget &target, std::span<const Request> requests,
                        const PostStyle &style, PostCounts &counts) {
    const uint32_t total = static_cast<uint32_t>(requests.size());
    for (uint32_t first = 0; first < total; first += style.chain) {
        const uint32_t n = std::min(style.chain, total - first);
        auto posted = style.extended
                          ? post_extended(target, requests, first, n,
                                          due(counts.post_calls, style.abort_every), counts)
                          : post_chain(target, requests, first, n,
                                       due(counts.post_calls, style.refuse_every), counts);
        if (!posted) {
            return posted;
        }
    }
    return {};
}

} // namespace collwire::lab
