// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/function.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr std::array kProtocols = {Protocol::LL, Protocol::LL128, Protocol::Simple};
constexpr std::array kAllReduceAlgorithms = {Algorithm::Tree,          Algorithm::Ring,
                                             Algorithm::CollnetDirect, Algorithm::CollnetChain,
                                             Algorithm::Nvls,          Algorithm::NvlsTree};
// Up to 2.22 without the last.
constexpr std::array kGatherAlgorithms = {Algorithm::Ring, Algorithm::CollnetDirect,
                                          Algorithm::Nvls, Algorithm::Pat};
constexpr int kReductions = 5;

// What of the table differs between versions.
struct TableShape {
    int types;             // 10, or 12 with the two of 8 bits
    int gather_algorithms; // of AllGather and ReduceScatter
    bool has_all_gather_v; // 2.29
};

// Rows in NCCL's order; a row's number is where its id is in ncclDevFuncRowToId.
std::vector<Function> rows_of(const TableShape &shape) {
    std::vector<Function> rows;
    const auto add_protocols = [&](Function function) {
        for (const Protocol protocol : kProtocols) {
            function.protocol = protocol;
            rows.push_back(function);
        }
    };
    const auto add_reductions = [&](Operation operation, const Algorithm *algorithms, int count) {
        for (int reduction = 0; reduction < kReductions; reduction++) {
            for (int type = 0; type < shape.types; type++) {
                for (int i = 0; i < count; i++)
                    add_protocols({operation, static_cast<Reduction>(reduction),
                                   static_cast<DataType>(type), algorithms[i]});
            }
        }
    };
    const Algorithm ring = Algorithm::Ring;
    rows.push_back({Operation::SendRecv});
    for (int i = 0; i < shape.gather_algorithms; i++)
        add_protocols({Operation::AllGather, Reduction::Sum, DataType::Uint8,
                       kGatherAlgorithms[static_cast<std::size_t>(i)]});
    add_protocols({Operation::Broadcast});
    if (shape.has_all_gather_v)
        add_protocols({Operation::AllGatherV});
    add_reductions(Operation::AllReduce, kAllReduceAlgorithms.data(),
                   static_cast<int>(kAllReduceAlgorithms.size()));
    add_reductions(Operation::Reduce, &ring, 1);
    add_reductions(Operation::ReduceScatter, kGatherAlgorithms.data(), shape.gather_algorithms);
    return rows;
}

std::vector<Function> rows_of_table(std::size_t count) {
    for (const int types : {10, 12}) {
        for (const int gather_algorithms : {3, 4}) {
            for (const bool has_all_gather_v : {false, true}) {
                auto rows = rows_of({types, gather_algorithms, has_all_gather_v});
                if (rows.size() == count)
                    return rows;
            }
        }
    }
    fatal(fmt::format("ncclDevFuncRowToId has {} rows, a shape that the double does not know. Fix: "
                      "a version that README.md lists",
                      count));
}

std::vector<Function> read_table() {
    const Symbol *table = library().find("ncclDevFuncRowToId");
    if (table == nullptr)
        fatal("this libnccl has no ncclDevFuncRowToId. Fix: NCCL 2.20 or later");
    const auto *ids = reinterpret_cast<const int *>(table->address);
    // The last entry only ends the table.
    const auto rows = rows_of_table(table->size_bytes / sizeof(int) - 1);
    std::vector<Function> by_id;
    for (std::size_t row = 0; row < rows.size(); row++) {
        if (ids[row] < 0) // not built
            continue;
        const auto id = static_cast<std::size_t>(ids[row]);
        by_id.resize(std::max(by_id.size(), id + 1));
        // Several rows may share a function; the first names it.
        if (by_id[id].operation == Operation::None)
            by_id[id] = rows[row];
    }
    return by_id;
}

} // namespace

const Function &function_of(unsigned id) {
    static const auto &table = *new std::vector<Function>(read_table());
    if (id >= table.size() || table[id].operation == Operation::None)
        fatal(fmt::format("NCCL launched function {}, which its own table lacks. Fix: a version "
                          "that README.md lists",
                          id));
    return table[id];
}

int nccl_version() {
    static const int version = [] {
        int found = 0;
        if (const Symbol *symbol = library().find("ncclGetVersion"))
            reinterpret_cast<int (*)(int *)>(symbol->address)(&found);
        return found;
    }();
    return version;
}

std::size_t bytes_of(DataType type) {
    constexpr std::array<std::size_t, 12> kBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return kBytes[static_cast<std::size_t>(type)];
}

bool is_signed_integer(DataType type) {
    return type == DataType::Int8 || type == DataType::Int32 || type == DataType::Int64;
}

const char *name_of(Operation operation) {
    constexpr std::array kNames = {"?",          "SendRecv",  "AllGather", "Broadcast",
                                   "AllGatherV", "AllReduce", "Reduce",    "ReduceScatter"};
    return kNames[static_cast<std::size_t>(operation)];
}

const char *name_of(Algorithm algorithm) {
    constexpr std::array kNames = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                   "NVLS_TREE", "PAT"};
    return kNames[static_cast<std::size_t>(algorithm)];
}

const char *name_of(Protocol protocol) {
    constexpr std::array kNames = {"LL", "LL128", "SIMPLE"};
    return kNames[static_cast<std::size_t>(protocol)];
}

std::string name_of(const Function &function) {
    return fmt::format("{}_{}_{}", name_of(function.operation), name_of(function.algorithm),
                       name_of(function.protocol));
}

} // namespace collwire::cuda_double
