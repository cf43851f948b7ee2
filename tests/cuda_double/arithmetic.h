// SPDX-License-Identifier: Apache-2.0
// NCCL's reductions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cuda_double/function.h"

namespace collwire::cuda_double {

struct ReductionOperator {
    Reduction kind = Reduction::Sum;
    DataType type = DataType::Uint8;
    // Of MinMax: what selects minimum or maximum; of PreMulSum: the factor, in the type's own bits;
    // of SumPostDiv: divisor << 1 | is_signed.
    std::uint64_t argument = 0;
};

// accumulated[i] = accumulated[i] op other[i]
void reduce_into(const ReductionOperator &op, void *accumulated, const void *other,
                 std::size_t elements);
// The first half of PreMulSum; for other kinds nothing.
void scale_input(const ReductionOperator &op, void *values, std::size_t elements);
// The last half of SumPostDiv; for other kinds nothing.
void divide_result(const ReductionOperator &op, void *values, std::size_t elements);

} // namespace collwire::cuda_double
