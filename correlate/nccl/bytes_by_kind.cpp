// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/bytes_by_kind.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace collwire::nccl {
namespace {

// Far below the size at which a product of two overflows.
__extension__ using Number = __int128;
constexpr Number MOST_OPERATIONS = Number{1} << 28;
constexpr Number MOST_BYTES = Number{1} << 90;

Number absolute(Number value) {
    return value < 0 ? -value : value;
}

Number common_divisor(Number a, Number b) {
    while (b != 0)
        a = std::exchange(b, a % b);
    return absolute(a);
}

// This many operations of each kind carry `bytes` together.
struct LinearEquation {
    std::vector<Number> operations; // by index of kind
    Number bytes = 0;

    // The first kind; the number of kinds if empty.
    [[nodiscard]] std::size_t first() const {
        return static_cast<std::size_t>(
            std::ranges::find_if(operations, [](Number one) { return one != 0; }) -
            operations.begin());
    }
    [[nodiscard]] bool is_small() const {
        return absolute(bytes) <= MOST_BYTES && std::ranges::all_of(operations, [](Number one) {
                   return absolute(one) <= MOST_OPERATIONS;
               });
    }
    // Eliminates the first kind of `other`.
    void take_out(const LinearEquation &other) {
        const std::size_t kind = other.first();
        const Number own = operations[kind], its = other.operations[kind];
        if (own == 0)
            return;
        bytes = bytes * its - other.bytes * own;
        Number divisor = absolute(bytes);
        for (std::size_t i = 0; i < operations.size(); ++i) {
            operations[i] = operations[i] * its - other.operations[i] * own;
            divisor = common_divisor(divisor, operations[i]);
        }
        if (divisor <= 1)
            return;
        bytes /= divisor;
        for (Number &one : operations)
            one /= divisor;
    }
};

enum class Verdict { New, FollowsFromOthers, Contradicted, NotKnown };

// Linearly independent sums. The first kind of each is in no other.
class Basis {
public:
    Verdict add(LinearEquation sum) {
        for (const LinearEquation &known : sums_) {
            sum.take_out(known);
            if (!sum.is_small())
                return Verdict::NotKnown;
        }
        if (sum.first() == sum.operations.size())
            return sum.bytes == 0 ? Verdict::FollowsFromOthers : Verdict::Contradicted;
        std::vector<LinearEquation> reduced = sums_;
        for (LinearEquation &known : reduced) {
            known.take_out(sum);
            if (!known.is_small())
                return Verdict::NotKnown;
        }
        reduced.push_back(std::move(sum));
        sums_ = std::move(reduced);
        return Verdict::New;
    }

    // Bytes of one operation of each kind that is alone in its sum; absent if that is not a whole
    // number.
    [[nodiscard]] std::optional<std::map<std::size_t, std::uint64_t>> solved() const {
        std::map<std::size_t, std::uint64_t> values;
        for (const LinearEquation &sum : sums_) {
            const std::size_t kind = sum.first();
            if (std::ranges::count_if(sum.operations, [](Number one) { return one != 0; }) != 1)
                continue;
            const Number own = sum.operations[kind];
            if (sum.bytes % own != 0 || sum.bytes / own < 0 || sum.bytes / own > Number{UINT64_MAX})
                return std::nullopt;
            values.emplace(kind, static_cast<std::uint64_t>(sum.bytes / own));
        }
        return values;
    }

private:
    std::vector<LinearEquation> sums_;
};

struct Solution {
    std::map<std::size_t, std::uint64_t> bytes; // of the solvable kinds
    std::vector<std::size_t> needed;            // sums that do not follow from earlier ones
};

// Absent if they contradict each other.
std::optional<Solution> solution_of(const std::vector<LinearEquation> &sums, std::size_t without) {
    Solution solution;
    Basis basis;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        if (i == without)
            continue;
        const Verdict verdict = basis.add(sums[i]);
        if (verdict == Verdict::Contradicted || verdict == Verdict::NotKnown)
            return std::nullopt;
        if (verdict == Verdict::New)
            solution.needed.push_back(i);
    }
    auto solved = basis.solved();
    if (!solved)
        return std::nullopt;
    solution.bytes = std::move(*solved);
    return solution;
}

} // namespace

KindSums::KindSums(Link &link) : link_(link) {
    for (Interval &interval : link_.intervals)
        stretches_.push_back({&interval, {}});
}

void KindSums::add(std::uint32_t order, const ShapeOp &op) {
    while (next_ < stretches_.size() && stretches_[next_].interval->end <= order)
        ++next_;
    if (next_ == stretches_.size() || order < stretches_[next_].interval->begin ||
        kinds_.size() > MAX_KINDS)
        return;
    kinds_.try_emplace(op.kind, Bounds{op.data_bytes, op.payload_bytes});
    ++stretches_[next_].operations[op.kind];
}

bool KindSums::has_unasked_bytes() const {
    return std::ranges::any_of(stretches_, [](const Stretch &stretch) {
        return stretch.operations.empty() && stretch.interval->measured_bytes != 0;
    });
}

void KindSums::solve() {
    // Operations in flight at the end of the recording give no sum.
    if (!stretches_.empty() && stretches_.back().interval->is_under_way)
        stretches_.pop_back();
    if (link_.is_unsolvable || kinds_.size() > MAX_KINDS || has_unasked_bytes())
        return;
    std::vector<std::uint32_t> kinds;
    for (const auto &[kind, bounds] : kinds_)
        kinds.push_back(kind);
    const auto index_of = [&](std::uint32_t kind) {
        return static_cast<std::size_t>(std::ranges::lower_bound(kinds, kind) - kinds.begin());
    };
    // Number of occurrences by the operations of each kind and their bytes.
    std::map<std::pair<std::map<std::uint32_t, std::uint32_t>, std::uint64_t>, std::size_t> seen;
    for (const Stretch &stretch : stretches_)
        if (!stretch.operations.empty())
            ++seen[{stretch.operations, stretch.interval->measured_bytes}];
    if (seen.size() > MAX_SUMS)
        return;
    std::vector<LinearEquation> sums;
    std::vector<std::size_t> times;
    for (const auto &[of, n_seen] : seen) {
        LinearEquation sum{std::vector<Number>(kinds.size()), of.second};
        for (const auto &[kind, n] : of.first)
            sum.operations[index_of(kind)] = n;
        sums.push_back(std::move(sum));
        times.push_back(n_seen);
    }
    auto solution = solution_of(sums, sums.size());
    if (!solution)
        return;
    for (const auto &[index, bytes] : solution->bytes)
        if (const Bounds &bounds = kinds_.at(kinds[index]);
            bytes == 0 || bytes < bounds.least || bytes > bounds.most)
            return;
    // No result may depend on one stretch only.
    for (const std::size_t needed : solution->needed) {
        if (times[needed] > 1)
            continue;
        const auto without = solution_of(sums, needed);
        std::erase_if(solution->bytes, [&](const auto &of_kind) {
            return !without || !without->bytes.contains(of_kind.first);
        });
    }
    for (const auto &[index, bytes] : solution->bytes)
        link_.bytes_of_kind.emplace(kinds[index], bytes);
    for (const Stretch &stretch : stretches_)
        stretch.interval->is_solved =
            !stretch.operations.empty() &&
            std::ranges::all_of(stretch.operations, [&](const auto &of_kind) {
                return link_.bytes_of_kind.contains(of_kind.first);
            });
}

} // namespace collwire::nccl
