// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/programs/traffic_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

namespace collwire::lab {
namespace {

constexpr std::array<std::pair<const char *, Operation>, 7> operation_names{{
    {"send", Operation::Send},
    {"send_imm", Operation::SendImm},
    {"write", Operation::Write},
    {"write_imm", Operation::WriteImm},
    {"read", Operation::Read},
    {"fetch_add", Operation::FetchAdd},
    {"compare_swap", Operation::CompareSwap},
}};

// Around the sizes at which a counting mistake shows: none, a pad byte, a word, a path MTU, several
// packets.
constexpr std::array<uint32_t, 20> lengths_bytes{0,    1,    3,    4,     7,     64,   255,
                                                 256,  1000, 1023, 1024,  1025,  2048, 4095,
                                                 4096, 4097, 9001, 16384, 40000, 65536};

constexpr uint32_t atomic_bytes = 8;

// splitmix64, Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

void choose_form(Request &request, const PlanOptions &options, uint64_t random) {
    const bool may_inline = options.max_inline_bytes > 0 && sends_data(request.operation) &&
                            request.length_bytes <= options.max_inline_bytes;
    if (request.length_bytes == 0) {
        request.form = DataForm::Nothing;
        return;
    }
    const bool in_line = may_inline && (random & 2) != 0;
    uint32_t pieces = 1;
    if (options.max_sges > 1 && (random & 1) != 0 && (options.uneven_lists || !in_line)) {
        pieces = 2 + static_cast<uint32_t>((random >> 8) % (options.max_sges - 1));
        while (!options.uneven_lists && request.length_bytes % pieces != 0) {
            pieces--;
        }
    }
    const bool list = pieces > 1;
    if (in_line) {
        request.form = list ? DataForm::InlineList : DataForm::Inline;
    } else {
        request.form = list ? DataForm::SgeList : DataForm::OneSge;
    }
    if (!list) {
        return;
    }
    uint32_t left = request.length_bytes;
    for (uint32_t i = 0; i + 1 < pieces; i++) {
        random = mix(random);
        const uint32_t piece = options.uneven_lists
                                   ? static_cast<uint32_t>(random % (uint64_t{left} + 1))
                                   : request.length_bytes / pieces;
        request.piece_bytes.push_back(piece);
        left -= piece;
    }
    request.piece_bytes.push_back(left);
}

} // namespace

bool takes_receive(Operation operation) {
    return operation == Operation::Send || operation == Operation::SendImm ||
           operation == Operation::WriteImm;
}

bool is_atomic(Operation operation) {
    return operation == Operation::FetchAdd || operation == Operation::CompareSwap;
}

bool sends_data(Operation operation) {
    return operation != Operation::Read && !is_atomic(operation);
}

bool transport_has(Transport transport, Operation operation) {
    switch (transport) {
    case Transport::Rc:
        return true;
    case Transport::Uc:
        return sends_data(operation);
    case Transport::Ud:
        return operation == Operation::Send || operation == Operation::SendImm;
    }
    return false;
}

const char *class_name(Operation operation) {
    if (is_atomic(operation)) {
        return "atomic";
    }
    for (const auto &[name, value] : operation_names) {
        if (value == operation) {
            return name;
        }
    }
    return "";
}

bool parse_transport(const std::string &text, Transport &transport) {
    if (text == "rc") {
        transport = Transport::Rc;
    } else if (text == "uc") {
        transport = Transport::Uc;
    } else if (text == "ud") {
        transport = Transport::Ud;
    } else {
        return false;
    }
    return true;
}

bool parse_operation(const std::string &text, Operation &operation) {
    for (const auto &[name, value] : operation_names) {
        if (text == name) {
            operation = value;
            return true;
        }
    }
    return false;
}

std::vector<Request> plan_round(const PlanOptions &options, uint32_t qp_index, uint64_t round) {
    std::vector<Operation> operations = options.operations;
    if (operations.empty()) {
        for (const auto &[name, value] : operation_names) {
            operations.push_back(value);
        }
    }
    std::erase_if(operations, [&](Operation operation) {
        return !transport_has(options.transport, operation);
    });
    std::vector<Request> requests;
    if (operations.empty()) {
        return requests;
    }
    requests.reserve(options.batch);
    for (uint32_t slot = 0; slot < options.batch; slot++) {
        const uint64_t key = pattern_key(options.seed, qp_index, round, slot);
        uint64_t random = mix(key ^ 0x706c616eU);
        Request request;
        request.operation = operations[(slot + round) % operations.size()];
        request.immediate = static_cast<uint32_t>(mix(key ^ 0x696d6dU));
        if (is_atomic(request.operation)) {
            request.length_bytes = atomic_bytes;
            request.atomic_start = mix(key ^ 0x7374617274U);
            request.atomic_add_or_compare = request.atomic_start;
            if (request.operation == Operation::FetchAdd) {
                request.atomic_add_or_compare = random;
            } else if ((random & 1) != 0) {
                request.atomic_add_or_compare++; // the comparison fails, and nothing is swapped
            }
            request.atomic_swap = mix(random);
        } else {
            // Below the limit the size comes from the list; where the list's is above it, the limit
            // and its neighbour.
            request.length_bytes = lengths_bytes[random % lengths_bytes.size()];
            if (request.length_bytes > options.max_length_bytes) {
                request.length_bytes =
                    options.max_length_bytes - static_cast<uint32_t>((random >> 32) % 2);
            }
            choose_form(request, options, mix(random));
        }
        requests.push_back(std::move(request));
    }
    return requests;
}

uint64_t pattern_key(uint64_t seed, uint32_t qp_index, uint64_t round, uint32_t slot) {
    return mix(mix(mix(seed) ^ qp_index) ^ round) ^ mix(slot);
}

void fill_pattern(std::span<uint8_t> bytes, uint64_t key) {
    uint64_t state = key;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(state)) {
        state = mix(state);
        std::memcpy(bytes.data() + at, &state, std::min(sizeof(state), bytes.size() - at));
    }
}

bool matches_pattern(std::span<const uint8_t> bytes, uint64_t key) {
    uint64_t state = key;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(state)) {
        state = mix(state);
        if (std::memcmp(bytes.data() + at, &state, std::min(sizeof(state), bytes.size() - at)) !=
            0) {
            return false;
        }
    }
    return true;
}

} // namespace collwire::lab
