// SPDX-License-Identifier: Apache-2.0
// Simple: a chunk is cut into slices; a slice fills whole steps, and head and tail say which steps
// are free and filled. A slice without data is posted all the same.
#include <algorithm>
#include <utility>

#include "tests/cuda_double/primitives.h"

namespace collwire::cuda_double {
namespace {

constexpr std::int64_t kSliceGrainElements = 16;
constexpr std::int64_t kSmallestSliceShare = 32; // of a slot

class SimplePrimitives : public Primitives {
public:
    explicit SimplePrimitives(PrimitivesSetup setup) : Primitives(std::move(setup)) {}

private:
    Played play(const Primitive &primitive) override {
        if (slice_ == 0)
            slice_elements_ = first_slice_elements(primitive);
        if (!is_ready(primitive))
            return Played::Nothing;
        const std::int64_t elements =
            std::clamp<std::int64_t>(primitive.elements - offset_, 0, slice_elements_);
        move(primitive, elements);
        post(primitive, elements * element_bytes());
        // Once a slice is short the next ones are empty.
        slice_elements_ = elements;
        offset_ += elements;
        if (++slice_ < setup_.slices_per_chunk)
            return Played::Part;
        slice_ = 0;
        offset_ = 0;
        return Played::All;
    }

    [[nodiscard]] std::uint64_t steps() const {
        return static_cast<std::uint64_t>(setup_.steps_per_slice);
    }

    [[nodiscard]] std::int64_t first_slice_elements(const Primitive &primitive) const {
        const std::int64_t grain = kSliceGrainElements * setup_.slices_per_chunk;
        const std::int64_t even = (primitive.elements + grain - 1) / grain * kSliceGrainElements;
        const std::int64_t full = setup_.slot_bytes / element_bytes() * setup_.steps_per_slice;
        return std::max(even, full / kSmallestSliceShare);
    }

    bool is_ready(const Primitive &primitive) {
        const auto filled = [&](Connection &connection) { return connection.has_filled(steps()); };
        const auto free = [&](Connection &connection) { return connection.has_free(steps()); };
        return (!primitive.receives ||
                std::all_of(setup_.receive.begin(), setup_.receive.end(), filled)) &&
               (!primitive.sends || std::all_of(setup_.send.begin(), setup_.send.end(), free));
    }

    template <class To> static void append(To &to, const std::vector<char *> &from) {
        to.insert(to.end(), from.begin(), from.end());
    }

    void move(const Primitive &primitive, std::int64_t elements) {
        const std::int64_t offset_bytes = offset_ * element_bytes();
        Sources sources;
        Destinations destinations;
        if (primitive.input != nullptr)
            sources.push_back(primitive.input + offset_bytes);
        if (primitive.output != nullptr)
            destinations.push_back(primitive.output + offset_bytes);
        if (primitive.receives) {
            for (const Connection &connection : setup_.receive)
                append(sources, connection.slots());
        }
        if (primitive.sends) {
            for (const Connection &connection : setup_.send)
                append(destinations, connection.slots());
        }
        combine(primitive, sources, destinations, elements);
    }

    void post(const Primitive &primitive, std::int64_t bytes) {
        if (primitive.receives) {
            for (Connection &connection : setup_.receive) {
                log(primitive, connection, Direction::Receive, steps(), bytes);
                connection.advance(steps());
                connection.post_head();
            }
        }
        if (primitive.sends) {
            for (Connection &connection : setup_.send) {
                log(primitive, connection, Direction::Send, steps(), bytes);
                connection.set_bytes(static_cast<std::uint64_t>(bytes));
                connection.advance(steps());
                connection.post_tail();
            }
        }
    }

    int slice_ = 0;
    std::int64_t offset_ = 0;
    std::int64_t slice_elements_ = 0;
};

} // namespace

std::unique_ptr<Primitives> make_simple(PrimitivesSetup setup) {
    return std::make_unique<SimplePrimitives>(std::move(setup));
}

} // namespace collwire::cuda_double
