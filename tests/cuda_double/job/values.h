// SPDX-License-Identifier: Apache-2.0
// Buffers on the device, what goes into them, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tests/cuda_double/fakecuda/nccl.h"

namespace collwire::job {

// Ends the process if it failed.
void require_cuda(cudaError_t error, const char *what);

class DeviceBuffer {
public:
    explicit DeviceBuffer(std::size_t bytes);
    ~DeviceBuffer();
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;

    // On the device: for NCCL alone.
    [[nodiscard]] char *data() const { return begin_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    // With what no operation results in.
    void clear() const;
    void put(std::span<const char> host) const; // at its begin
    void get(std::size_t offset, std::span<char> host) const;

private:
    std::size_t bytes_;
    char *begin_ = nullptr;
};

// An element before it becomes one of the type: all values are small integers, so that 16 bits
// hold every sum.
using ValueOf = std::function<std::int64_t(std::size_t index)>;

// What a rank puts into an operation; `sequence` distinguishes operations.
std::int64_t input_value(ncclRedOp_t reduction, int sequence, int rank, std::size_t index);
// What all ranks' inputs reduce to; for ncclAvg the sum.
std::int64_t reduced_value(ncclRedOp_t reduction, int sequence, int ranks, std::size_t index);

void fill(ncclDataType_t type, char *to, std::size_t count, const ValueOf &value);

struct Expected {
    ValueOf value;
    int divisor = 1; // of ncclAvg: the number of ranks
};
struct Mismatch {
    std::size_t count = 0;
    std::string first; // empty: none
};
Mismatch compare(ncclDataType_t type, const char *got, std::size_t count, const Expected &expected);

} // namespace collwire::job
