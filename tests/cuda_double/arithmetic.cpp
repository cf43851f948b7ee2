// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/arithmetic.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

__extension__ using Float16 = _Float16;

class Bfloat16 {
public:
    Bfloat16() = default;
    // To nearest, ties to even, as the hardware does.
    explicit Bfloat16(float value) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
        bits_ = is_nan ? std::uint16_t{0x7fff}
                       : static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    explicit operator float() const {
        const std::uint32_t bits = static_cast<std::uint32_t>(bits_) << 16;
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    friend Bfloat16 operator+(Bfloat16 a, Bfloat16 b) {
        return Bfloat16(static_cast<float>(a) + static_cast<float>(b));
    }
    friend Bfloat16 operator*(Bfloat16 a, Bfloat16 b) {
        return Bfloat16(static_cast<float>(a) * static_cast<float>(b));
    }
    friend bool operator<(Bfloat16 a, Bfloat16 b) {
        return static_cast<float>(a) < static_cast<float>(b);
    }

private:
    std::uint16_t bits_;
};

// Calls with a value of the type. Integers are unsigned here: sums and products are the same bits.
template <class Call> void with_type(DataType type, Call call) {
    switch (type) {
    case DataType::Int8:
    case DataType::Uint8:
        return call(std::uint8_t{});
    case DataType::Int32:
    case DataType::Uint32:
        return call(std::uint32_t{});
    case DataType::Int64:
    case DataType::Uint64:
        return call(std::uint64_t{});
    case DataType::Float16:
        return call(Float16{});
    case DataType::Float32:
        return call(float{});
    case DataType::Float64:
        return call(double{});
    case DataType::Bfloat16:
        return call(Bfloat16{});
    case DataType::Float8e4m3:
    case DataType::Float8e5m2:
        break;
    }
    fatal("a reduction of 8-bit floats has no double. Fix: another data type");
}

// For integers NCCL flips bits by a mask, so that the minimum of the flipped values is what is
// asked for; for floats bit 0 of the argument asks for the maximum.
template <class T> T min_or_max(T a, T b, std::uint64_t argument) {
    if constexpr (std::is_integral_v<T>) {
        const T mask = static_cast<T>(argument);
        const T flipped_a = a ^ mask;
        const T flipped_b = b ^ mask;
        return static_cast<T>((flipped_a < flipped_b ? flipped_a : flipped_b) ^ mask);
    } else {
        const bool takes_b = (argument & 1) != 0 ? a < b : b < a;
        return takes_b ? b : a;
    }
}

template <class T, class Combine>
void combine(void *accumulated, const void *other, std::size_t elements, Combine with) {
    auto *to = static_cast<T *>(accumulated);
    const auto *from = static_cast<const T *>(other);
    for (std::size_t i = 0; i < elements; i++)
        to[i] = static_cast<T>(with(to[i], from[i]));
}

template <class Unsigned>
void divide(void *values, std::size_t elements, std::uint64_t divisor_and_sign) {
    using Signed = std::make_signed_t<Unsigned>;
    auto *to = static_cast<Unsigned *>(values);
    const auto divisor = static_cast<Unsigned>(divisor_and_sign >> 1);
    const bool is_signed = (divisor_and_sign & 1) != 0;
    for (std::size_t i = 0; i < elements; i++) {
        to[i] =
            is_signed
                ? static_cast<Unsigned>(static_cast<Signed>(to[i]) / static_cast<Signed>(divisor))
                : static_cast<Unsigned>(to[i] / divisor);
    }
}

} // namespace

void reduce_into(const ReductionOperator &op, void *accumulated, const void *other,
                 std::size_t elements) {
    with_type(op.type, [&](auto zero) {
        using T = decltype(zero);
        switch (op.kind) {
        case Reduction::Prod:
            return combine<T>(accumulated, other, elements, [](T a, T b) { return a * b; });
        case Reduction::MinMax:
            return combine<T>(accumulated, other, elements,
                              [&](T a, T b) { return min_or_max(a, b, op.argument); });
        case Reduction::Sum:
        case Reduction::PreMulSum:
        case Reduction::SumPostDiv:
            return combine<T>(accumulated, other, elements, [](T a, T b) { return a + b; });
        }
    });
}

void scale_input(const ReductionOperator &op, void *values, std::size_t elements) {
    if (op.kind != Reduction::PreMulSum)
        return;
    with_type(op.type, [&](auto factor) {
        using T = decltype(factor);
        std::memcpy(static_cast<void *>(&factor), &op.argument, sizeof factor);
        auto *to = static_cast<T *>(values);
        for (std::size_t i = 0; i < elements; i++)
            to[i] = static_cast<T>(to[i] * factor);
    });
}

void divide_result(const ReductionOperator &op, void *values, std::size_t elements) {
    if (op.kind != Reduction::SumPostDiv)
        return;
    switch (bytes_of(op.type)) {
    case 1:
        return divide<std::uint8_t>(values, elements, op.argument);
    case 4:
        return divide<std::uint32_t>(values, elements, op.argument);
    case 8:
        return divide<std::uint64_t>(values, elements, op.argument);
    default:
        fatal("a division after the sum of 16-bit values has no double. Fix: another data type");
    }
}

} // namespace collwire::cuda_double
