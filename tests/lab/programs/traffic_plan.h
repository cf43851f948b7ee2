// SPDX-License-Identifier: Apache-2.0
// The requests of a test program. Both ends compute them from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace collwire::lab {

enum class Transport { Rc, Uc, Ud };
enum class Operation { Send, SendImm, Write, WriteImm, Read, FetchAdd, CompareSwap };
enum class DataForm { Nothing, OneSge, SgeList, Inline, InlineList };

struct Request {
    Operation operation = Operation::Send;
    DataForm form = DataForm::OneSge;
    uint32_t length_bytes = 0;
    std::vector<uint32_t> piece_bytes; // of the lists; their sum is length_bytes, a piece may be 0
    uint32_t immediate = 0;
    uint64_t atomic_start = 0; // the responder's word before the request
    uint64_t atomic_add_or_compare = 0;
    uint64_t atomic_swap = 0;
};

struct PlanOptions {
    Transport transport = Transport::Rc;
    uint64_t seed = 1;
    uint32_t batch = 32;               // work requests a round
    uint32_t max_length_bytes = 65536; // of one message; UD: at most the path MTU
    uint32_t max_inline_bytes = 0;     // 0: no inline data
    uint32_t max_sges = 4;             // at least 1
    // False: the pieces of a list are of one size, and no list is inline. rdma_rxe's ibv_wr_* of
    // rdma-core before 64 takes the first piece's length for all, and sends an inline list as an
    // empty message.
    bool uneven_lists = true;
    std::vector<Operation> operations; // used in turn; empty: every one that the transport has
};

bool takes_receive(Operation operation); // consumes a work request of the responder's receive queue
bool is_atomic(Operation operation);
bool sends_data(Operation operation); // data flows from the requester to the responder
bool transport_has(Transport transport, Operation operation);
// The opcode class that a work request is counted under: send, send_imm, write, write_imm, read,
// atomic.
const char *class_name(Operation operation);
bool parse_transport(const std::string &text, Transport &transport);
bool parse_operation(const std::string &text, Operation &operation);

// The requests of one round of one queue pair. Request i uses slot i of both ends' buffers.
std::vector<Request> plan_round(const PlanOptions &options, uint32_t qp_index, uint64_t round);

uint64_t pattern_key(uint64_t seed, uint32_t qp_index, uint64_t round, uint32_t slot);
void fill_pattern(std::span<uint8_t> bytes, uint64_t key);
bool matches_pattern(std::span<const uint8_t> bytes, uint64_t key);

} // namespace collwire::lab
