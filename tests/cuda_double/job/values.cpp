// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tests/cuda_double/job/plan.h"
#include "tests/cuda_double/rendezvous.h"

namespace collwire::job {
namespace {

constexpr std::int64_t kValues = 11;
constexpr int kClearByte = 0xa5;

__extension__ using Half = _Float16;

class Bfloat16 {
public:
    explicit Bfloat16(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        bits_ = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
    }
    explicit operator double() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
    }

private:
    std::uint16_t bits_;
};

template <class T> T from_integer(std::int64_t value) {
    if constexpr (std::is_same_v<T, Bfloat16>)
        return Bfloat16(static_cast<float>(value));
    else
        return static_cast<T>(value);
}

template <class T> struct Tag { using Type = T; };

template <class Call> auto with_type(ncclDataType_t type, Call call) {
    switch (type) {
    case ncclInt8:
        return call(Tag<std::int8_t>{});
    case ncclUint8:
        return call(Tag<std::uint8_t>{});
    case ncclInt32:
        return call(Tag<std::int32_t>{});
    case ncclUint32:
        return call(Tag<std::uint32_t>{});
    case ncclInt64:
        return call(Tag<std::int64_t>{});
    case ncclUint64:
        return call(Tag<std::uint64_t>{});
    case ncclFloat16:
        return call(Tag<Half>{});
    case ncclFloat32:
        return call(Tag<float>{});
    case ncclFloat64:
        return call(Tag<double>{});
    case ncclBfloat16:
        break;
    }
    return call(Tag<Bfloat16>{});
}

template <class T> T load(const char *from, std::size_t index) {
    T value = from_integer<T>(0);
    std::memcpy(&value, from + index * sizeof(T), sizeof value);
    return value;
}

// Averages alone are rounded: integers lose the fraction, floats the bits that they lack.
template <class T> double slack(double wanted, int divisor) {
    if (divisor == 1)
        return 0;
    if (std::is_integral_v<T>)
        return 0.999;
    return std::abs(wanted) * (sizeof(T) == 2 ? 1e-2 : 1e-5);
}

// Neither is done when it returns, and streams that do not block do not wait for it.
void settle() {
    require_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

} // namespace

void require_cuda(cudaError_t error, const char *what) {
    if (error != cudaSuccess)
        give_up(fmt::format("{}: CUDA error {}. Fix: cudaError_t has its name; of the double "
                            "COLLWIRE_CUDA_VERBOSE=1 shows more",
                            what, error));
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes_) != cudaSuccess)
        give_up("cudaMalloc failed. Fix: more memory, or smaller operations");
    begin_ = static_cast<char *>(memory);
    clear();
}

DeviceBuffer::~DeviceBuffer() {
    cudaFree(begin_);
}

void DeviceBuffer::clear() const {
    require_cuda(cudaMemset(begin_, kClearByte, bytes_), "cudaMemset");
    settle();
}

void DeviceBuffer::put(std::span<const char> host) const {
    require_cuda(cudaMemcpy(begin_, host.data(), host.size(), cudaMemcpyHostToDevice),
                 "cudaMemcpy to the device");
    settle();
}

void DeviceBuffer::get(std::size_t offset, std::span<char> host) const {
    require_cuda(cudaMemcpy(host.data(), begin_ + offset, host.size(), cudaMemcpyDeviceToHost),
                 "cudaMemcpy from the device");
}

std::int64_t input_value(ncclRedOp_t reduction, int sequence, int rank, std::size_t index) {
    const auto mixed = static_cast<std::int64_t>(index) + rank + sequence;
    // Few bits even in the product of many ranks.
    if (reduction == ncclProd)
        return 1 + mixed % 2;
    return (static_cast<std::int64_t>(index) * 7 + rank * 13 + sequence * 5) % kValues;
}

std::int64_t reduced_value(ncclRedOp_t reduction, int sequence, int ranks, std::size_t index) {
    std::int64_t result = input_value(reduction, sequence, 0, index);
    for (int rank = 1; rank < ranks; rank++) {
        const std::int64_t value = input_value(reduction, sequence, rank, index);
        switch (reduction) {
        case ncclProd:
            result *= value;
            break;
        case ncclMax:
            result = std::max(result, value);
            break;
        case ncclMin:
            result = std::min(result, value);
            break;
        case ncclSum:
        case ncclAvg:
            result += value;
            break;
        }
    }
    return result;
}

void fill(ncclDataType_t type, char *to, std::size_t count, const ValueOf &value) {
    with_type(type, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        for (std::size_t i = 0; i < count; i++) {
            const T element = from_integer<T>(value(i));
            std::memcpy(to + i * sizeof(T), &element, sizeof element);
        }
    });
}

Mismatch compare(ncclDataType_t type, const char *got, std::size_t count,
                 const Expected &expected) {
    return with_type(type, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        Mismatch found;
        for (std::size_t i = 0; i < count; i++) {
            const auto value = static_cast<double>(load<T>(got, i));
            // Through the type: sums of 8 bits wrap.
            const auto wanted =
                static_cast<double>(from_integer<T>(expected.value(i))) / expected.divisor;
            if (std::abs(value - wanted) <= slack<T>(wanted, expected.divisor))
                continue;
            if (found.count++ == 0)
                found.first =
                    fmt::format("element {} of {} is {}, wanted {}", i, count, value, wanted);
        }
        return found;
    });
}

} // namespace collwire::job
