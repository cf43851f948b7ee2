// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/number_pairs.h"

#include <algorithm>

namespace collwire::nccl {

namespace {

bool is_from_start(const EndCalls &calls) {
    return calls.base == SeqBase::Creation;
}

class Numberer {
public:
    explicit Numberer(std::vector<EndCalls> &all) : all_(all), numbers_(all.size()) {}

    void run() {
        bool has_start = false;
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (is_from_start(all_[i]) && is_free(i, 0)) {
                numbers_[i] = 0;
                has_start = true;
            }
        if (has_start)
            extend(0);
        for (std::size_t seed = 0; !has_start && seed < all_.size(); ++seed) {
            numbers_[seed] = 0;
            if (extend(INT64_MIN))
                break;
            numbers_[seed].reset();
        }
        store_numbers(has_start);
    }

private:
    // Matches unnumbered ones with numbered ones until no more fit.
    bool extend(std::int64_t least) {
        bool is_extended = false;
        for (bool is_changed = true; is_changed;) {
            is_changed = false;
            for (std::size_t i = 0; i < all_.size(); ++i)
                if (!numbers_[i] && !is_from_start(all_[i]) && place(i, least))
                    is_changed = is_extended = true;
        }
        return is_extended;
    }

    bool place(std::size_t index, std::int64_t least) {
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (!numbers_[i] || all_[i].is_send == all_[index].is_send)
                continue;
            const auto found = align_sequences(all_[i].items, all_[index].items);
            if (!found || *numbers_[i] + found->offset < least ||
                !is_free(index, *numbers_[i] + found->offset))
                continue;
            numbers_[index] = *numbers_[i] + found->offset;
            return true;
        }
        return false;
    }

    // Its end makes a call once, and in the order of its recordings.
    [[nodiscard]] bool is_free(std::size_t index, std::int64_t number) const {
        const auto end_of = [&](std::size_t i, std::int64_t first) {
            return first + static_cast<std::int64_t>(all_[i].n);
        };
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (i != index && numbers_[i] && all_[i].is_send == all_[index].is_send &&
                (i < index ? end_of(i, *numbers_[i]) > number
                           : end_of(index, number) > *numbers_[i]))
                return false;
        return true;
    }

    void store_numbers(bool has_start) {
        std::int64_t first = 0;
        for (const auto &number : numbers_)
            if (number && !has_start)
                first = std::min(first, *number);
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (!numbers_[i])
                continue;
            all_[i].number = static_cast<std::uint64_t>(*numbers_[i] - first);
            if (!is_from_start(all_[i]))
                all_[i].base = SeqBase::Aligned;
        }
    }

    std::vector<EndCalls> &all_;
    std::vector<std::optional<std::int64_t>> numbers_;
};

} // namespace

bool needs_items(const std::vector<EndCalls> &all) {
    return !std::all_of(all.begin(), all.end(), is_from_start) &&
           std::any_of(all.begin(), all.end(),
                       [](const EndCalls &calls) { return calls.is_send; }) &&
           std::any_of(all.begin(), all.end(),
                       [](const EndCalls &calls) { return !calls.is_send; });
}

void number_pairs(std::vector<EndCalls> &all) {
    Numberer(all).run();
}

} // namespace collwire::nccl
