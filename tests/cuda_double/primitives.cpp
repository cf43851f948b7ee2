// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/primitives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace collwire::cuda_double {
namespace {

// So that other streams and channels move as well.
constexpr int kMostPartsPerCall = 16;

} // namespace

Primitive Primitive::send(const char *input, std::int64_t elements, char *copy_to) {
    return {.input = input, .output = copy_to, .elements = elements, .sends = true};
}

Primitive Primitive::receive(char *output, std::int64_t elements) {
    return {.output = output, .elements = elements, .receives = true};
}

Primitive Primitive::receive_copy_send(char *output, std::int64_t elements) {
    return {.output = output, .elements = elements, .receives = true, .sends = true};
}

Primitive Primitive::receive_reduce_send(const char *input, std::int64_t elements) {
    return {.input = input, .elements = elements, .receives = true, .sends = true};
}

Primitive Primitive::receive_reduce_copy(const char *input, char *output, std::int64_t elements) {
    return {
        .input = input, .output = output, .elements = elements, .receives = true, .is_final = true};
}

Primitive Primitive::receive_reduce_copy_send(const char *input, char *output,
                                              std::int64_t elements) {
    return {.input = input,
            .output = output,
            .elements = elements,
            .receives = true,
            .sends = true,
            .is_final = true};
}

std::unique_ptr<Primitives> Primitives::make(PrimitivesSetup setup) {
    return setup.protocol == Protocol::Simple ? make_simple(std::move(setup))
                                              : make_low_latency(std::move(setup));
}

Primitives::Primitives(PrimitivesSetup setup)
    : setup_(std::move(setup)),
      element_bytes_(static_cast<std::int64_t>(bytes_of(setup_.reduction.type))) {}

bool Primitives::advance(bool &progressed) {
    if (!is_open_) {
        const auto steps_per_chunk =
            static_cast<std::uint64_t>(setup_.slices_per_chunk * setup_.steps_per_slice);
        for (Connection &connection : setup_.receive)
            connection.open(setup_.protocol, setup_.slot_bytes, steps_per_chunk);
        for (Connection &connection : setup_.send)
            connection.open(setup_.protocol, setup_.slot_bytes, steps_per_chunk);
        is_open_ = true;
    }
    for (int part = 0; part < kMostPartsPerCall && current_ < setup_.primitives.size(); part++) {
        const Played played = play(setup_.primitives[current_]);
        if (played == Played::Nothing)
            return false;
        progressed = true;
        if (played == Played::All)
            current_++;
    }
    if (current_ < setup_.primitives.size())
        return false;
    for (const Connection &connection : setup_.receive)
        connection.save_step();
    for (const Connection &connection : setup_.send)
        connection.save_step();
    return true;
}

std::string Primitives::state() const {
    std::string text = fmt::format("channel {} {} primitive {} of {}", setup_.channel,
                                   name_of(setup_.protocol), current_, setup_.primitives.size());
    for (const auto *connections : {&setup_.receive, &setup_.send}) {
        for (const Connection &connection : *connections)
            text += ", " + connection.state();
    }
    return text;
}

void Primitives::combine(const Primitive &primitive, const Sources &sources,
                         const Destinations &destinations, std::int64_t elements) {
    if (destinations.empty() || elements <= 0)
        return;
    const ReductionOperator &op = setup_.reduction;
    const auto count = static_cast<std::size_t>(elements);
    const std::size_t bytes = count * static_cast<std::size_t>(element_bytes_);
    const bool scales = primitive.input != nullptr && op.kind == Reduction::PreMulSum;
    const bool divides = primitive.is_final && op.kind == Reduction::SumPostDiv;
    const char *result = sources.front();
    if (sources.size() > 1 || scales || divides) {
        accumulator_.resize(std::max(accumulator_.size(), bytes));
        std::memcpy(accumulator_.data(), sources.front(), bytes);
        if (scales)
            scale_input(op, accumulator_.data(), count);
        for (std::size_t i = 1; i < sources.size(); i++)
            reduce_into(op, accumulator_.data(), sources[i], count);
        if (divides)
            divide_result(op, accumulator_.data(), count);
        result = accumulator_.data();
    }
    for (char *destination : destinations)
        std::memmove(destination, result, bytes);
}

void Primitives::log(const Primitive &primitive, const Connection &connection, Direction direction,
                     std::uint64_t steps, std::int64_t bytes) {
    setup_.truth->add(primitive.work, setup_.channel, connection.peer(), direction,
                      connection.index(), setup_.protocol, connection.step(), steps,
                      static_cast<std::uint64_t>(bytes));
}

} // namespace collwire::cuda_double
