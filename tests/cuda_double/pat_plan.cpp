// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/pat_plan.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "tests/cuda_double/device_state.h"

namespace collwire::cuda_double {
namespace {

using Distances = std::vector<int>;

int power_of_two_from(int value) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(value, 1))));
}

int dimension_of(int distance) {
    return std::countr_zero(static_cast<unsigned>(distance));
}

// Odd places after even ones, at every scale: 0 4 2 6 1 5 3 7.
template <class Each> void visit_by_halves(int begin, int stride, int end, Each each) {
    if (begin + stride >= end) {
        each(begin);
        return;
    }
    visit_by_halves(begin, 2 * stride, end, each);
    visit_by_halves(begin + stride, 2 * stride, end, each);
}

class Planner {
public:
    explicit Planner(const PatShape &shape)
        : shape_(shape), span_(power_of_two_from(shape.ranks)),
          plan_(static_cast<std::size_t>(dimension_of(span_))) {
        // At most half of the ranks are under way at once: in a message as many as fit, and as many
        // messages as a connection has slots.
        const int most = power_of_two_from(shape.ranks / 2);
        const std::int64_t fitting =
            shape.slot_bytes / std::max<std::int64_t>(shape.block_bytes, 1);
        const auto power = static_cast<std::int64_t>(
            std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(fitting, 1))));
        blocks_per_message_ = static_cast<int>(std::min<std::int64_t>(power, most));
        blocks_per_round_ = std::min(kFifoSlots * blocks_per_message_, most);
    }

    PatPlan plan() {
        const int stride = span_ / blocks_per_round_;
        // AllGather: the farthest distances first, which only depend on one another.
        for (int bit = span_ / 2; bit >= stride; bit /= 2)
            add_round(bit, 2 * bit);
        for (int first = 1; first < stride; first++)
            add_round(first, stride);
        if (!shape_.is_gather) {
            for (auto &messages : plan_)
                std::reverse(messages.begin(), messages.end());
        }
        return std::move(plan_);
    }

private:
    // The distances first, first + stride, ...: all of one dimension.
    void add_round(int first, int stride) {
        const auto messages =
            shape_.is_gather ? gather_round(first, stride) : reduce_round(first, stride);
        auto &all = plan_[static_cast<std::size_t>(dimension_of(first))];
        all.insert(all.end(), messages.begin(), messages.end());
    }

    [[nodiscard]] std::vector<PatMessage> gather_round(int first, int stride) const {
        Distances distances;
        for (int distance = first; distance < shape_.ranks; distance += stride)
            distances.push_back(distance);
        return cut(distances);
    }

    // A message takes distances that are far from one another, so that the ranks that do not exist
    // are spread over all messages; its nearest one comes last. The result is reversed, as all is.
    [[nodiscard]] std::vector<PatMessage> reduce_round(int first, int stride) const {
        Distances distances;
        const int count = (span_ - first + stride - 1) / stride;
        visit_by_halves(0, 1, count, [&](int place) {
            const int distance = first + place * stride;
            distances.push_back(distance < shape_.ranks ? distance : kAbsent);
        });
        std::reverse(distances.begin(), distances.end());
        std::vector<PatMessage> messages = cut(distances);
        std::erase_if(messages, [](const PatMessage &message) {
            return message.distances.back() == kAbsent;
        });
        std::reverse(messages.begin(), messages.end());
        return messages;
    }

    [[nodiscard]] std::vector<PatMessage> cut(const Distances &distances) const {
        std::vector<PatMessage> messages;
        for (std::size_t i = 0; i < distances.size(); i++) {
            if (i % static_cast<std::size_t>(blocks_per_message_) == 0)
                messages.emplace_back();
            messages.back().distances.push_back(distances[i]);
        }
        return messages;
    }

    PatShape shape_;
    int span_; // the power of two that is not below the number of ranks
    int blocks_per_message_ = 1;
    int blocks_per_round_ = 1;
    PatPlan plan_;
};

} // namespace

PatPlan plan_pat(const PatShape &shape) {
    return Planner(shape).plan();
}

} // namespace collwire::cuda_double
