// SPDX-License-Identifier: Apache-2.0
// Device functions. The kernel that is launched says little: which function it runs is a number in
// the work, and NCCL's own table ncclDevFuncRowToId says what the number means.
#pragma once

#include <cstddef>
#include <string>

namespace collwire::cuda_double {

// The order of these is NCCL's.
enum class Algorithm { Tree, Ring, CollnetDirect, CollnetChain, Nvls, NvlsTree, Pat };
enum class Protocol { LL, LL128, Simple };
enum class Reduction { Sum, Prod, MinMax, PreMulSum, SumPostDiv };
enum class DataType {
    Int8,
    Uint8,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float16,
    Float32,
    Float64,
    Bfloat16,
    Float8e4m3,
    Float8e5m2
};

enum class Operation {
    None,
    SendRecv,
    AllGather,
    Broadcast,
    AllGatherV,
    AllReduce,
    Reduce,
    ReduceScatter
};

struct Function {
    Operation operation = Operation::None;
    Reduction reduction = Reduction::Sum;
    DataType type = DataType::Uint8;
    Algorithm algorithm = Algorithm::Ring;
    Protocol protocol = Protocol::Simple;
};

// Fatal for a number that the table lacks.
const Function &function_of(unsigned id);

// ncclGetVersion of the mapped library.
int nccl_version();

std::size_t bytes_of(DataType type);
bool is_signed_integer(DataType type);
const char *name_of(Operation operation);
const char *name_of(Algorithm algorithm);
const char *name_of(Protocol protocol);
std::string name_of(const Function &function); // AllReduce_RING_SIMPLE

} // namespace collwire::cuda_double
