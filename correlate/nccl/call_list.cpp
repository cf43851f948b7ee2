// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/call_list.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "correlate/model/address.h"

namespace collwire::nccl {

using model::mix;

namespace {

constexpr std::uint64_t LOWER_HALF = UINT32_MAX;

std::uint64_t both(std::uint64_t upper, std::uint32_t lower) {
    return upper << 32U | lower;
}

// `is_same`: of two that follow each other, the second is a repetition.
template <typename List, typename Less, typename IsSame>
void sort_without_repetitions(List &list, Less less, IsSame is_same) {
    const bool is_sorted = std::is_sorted(list.begin(), list.end(), less);
    if (is_sorted && std::adjacent_find(list.begin(), list.end(), is_same) == list.end())
        return;
    std::vector<typename List::value_type> all(list.begin(), list.end());
    if (!is_sorted)
        std::stable_sort(all.begin(), all.end(), less);
    all.erase(std::unique(all.begin(), all.end(), is_same), all.end());
    list.clear();
    for (const auto &one : all)
        list.push_back(one);
}

} // namespace

std::uint64_t hash_of(const Call &call) {
    std::uint64_t hash = mix(call.count ^ both(call.tid, call.arguments_hash));
    hash = mix(hash ^ call.stream ^
               both(static_cast<std::uint32_t>(call.root) ^ std::uint64_t{call.flags} << 8U ^
                        std::uint64_t{call.result} << 16U,
                    static_cast<std::uint32_t>(call.reduction) ^ std::uint32_t{call.func} << 24U ^
                        std::uint32_t{call.datatype} << 16U));
    return hash;
}

std::uint64_t hash_of(const Launch &launch) {
    std::uint64_t hash = mix(launch.shape ^ both(launch.tid, launch.n_ops));
    return mix(hash ^ launch.plan ^ launch.launched ^
               both(launch.shape_index, std::uint32_t{launch.n_tasks} << 16U ^
                                            std::uint32_t{launch.flags} << 8U ^ launch.channels));
}

std::uint32_t CallList::kind_of(const Call &call) {
    Call kind = call;
    kind.time_ns = 0;
    return kinds_.put(kind);
}

void CallList::push_back(const Call &call) {
    kind_.push_back(kind_of(call));
    time_ns_.push_back(call.time_ns);
}

void CallList::set(std::size_t i, const Call &call) {
    kind_[i] = kind_of(call);
    time_ns_[i] = call.time_ns;
}

void CallList::clear() {
    time_ns_ = {};
    kind_ = {};
    kinds_.clear();
}

void CallList::put_in_order() {
    sort_without_repetitions(
        *this, [](const Call &a, const Call &b) { return a.time_ns < b.time_ns; }, std::equal_to{});
    time_ns_.shrink_to_fit();
    kind_.shrink_to_fit();
    kinds_.shrink();
}

std::uint32_t LaunchList::kind_of(const Launch &launch) {
    Launch kind = launch;
    kind.time_ns = 0;
    kind.launched &= ~LOWER_HALF;
    kind.first_task = kind.order = kind.replay = 0;
    return kinds_.put(kind);
}

void LaunchList::push_back(const Launch &launch) {
    kind_.push_back(kind_of(launch));
    time_ns_.push_back(launch.time_ns);
    launched_.push_back(static_cast<std::uint32_t>(launch.launched & LOWER_HALF));
    first_task_.push_back(launch.first_task);
    order_.push_back(launch.order);
    if (!replay_.empty() || launch.replay != 0) {
        replay_.resize(size());
        replay_.back() = launch.replay;
    }
}

void LaunchList::set(std::size_t i, const Launch &launch) {
    kind_[i] = kind_of(launch);
    time_ns_[i] = launch.time_ns;
    launched_[i] = static_cast<std::uint32_t>(launch.launched & LOWER_HALF);
    first_task_[i] = launch.first_task;
    order_[i] = launch.order;
    if (replay_.empty() && launch.replay != 0)
        replay_.resize(size());
    if (!replay_.empty())
        replay_[i] = launch.replay;
}

void LaunchList::clear() {
    time_ns_ = {};
    for (std::vector<std::uint32_t> *column : {&launched_, &first_task_, &order_, &replay_, &kind_})
        *column = {};
    kinds_.clear();
}

void LaunchList::put_in_order() {
    sort_without_repetitions(
        *this,
        [](const Launch &a, const Launch &b) {
            return std::tie(a.time_ns, a.tid, a.plan) < std::tie(b.time_ns, b.tid, b.plan);
        },
        [](const Launch &a, const Launch &b) {
            return std::tie(a.time_ns, a.tid, a.plan, a.shape) ==
                   std::tie(b.time_ns, b.tid, b.plan, b.shape);
        });
    time_ns_.shrink_to_fit();
    for (std::vector<std::uint32_t> *column : {&launched_, &first_task_, &order_, &kind_})
        column->shrink_to_fit();
    kinds_.shrink();
}

} // namespace collwire::nccl
