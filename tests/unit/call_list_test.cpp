// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/call_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "correlate/nccl/call_joins.h"
#include "correlate/nccl/passage_log.h"

namespace collwire::nccl {
namespace {

using Numbers = std::mt19937_64;

// Half of them of few kinds, the others unlike each other.
Call call_of(Numbers &numbers, std::uint64_t time_ns) {
    Call call;
    call.time_ns = time_ns;
    const std::uint64_t kind = numbers() % 2 == 0 ? numbers() % 5 : numbers();
    call.count = kind;
    call.stream = numbers() % 2 == 0 ? UINT64_MAX : 0;
    call.arguments_hash = static_cast<std::uint32_t>(kind * 7);
    call.root = kind % 3 == 0 ? -1 : 0;
    call.reduction = static_cast<std::int32_t>(numbers() % 2);
    call.func = static_cast<std::uint8_t>(kind % 4);
    return call;
}

Launch launch_of(Numbers &numbers, std::uint64_t time_ns) {
    Launch launch;
    launch.time_ns = time_ns;
    launch.plan = numbers() % 3;
    launch.shape = numbers() % 2 == 0 ? numbers() % 5 : numbers();
    launch.launched = numbers() >> (numbers() % 64);
    launch.n_ops = static_cast<std::uint32_t>(numbers() % 3);
    launch.first_task = static_cast<std::uint32_t>(numbers());
    launch.n_tasks = static_cast<std::uint16_t>(numbers() % 3);
    return launch;
}

template <typename List>
void expect_equal(const List &list, const std::vector<typename List::value_type> &expected) {
    ASSERT_EQ(list.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(list[i], expected[i]) << i;
    EXPECT_TRUE(std::equal(list.begin(), list.end(), expected.begin(), expected.end()));
}

TEST(CallList, HasWhatWasPutIn) {
    Numbers numbers(1);
    CallList list;
    std::vector<Call> expected;
    for (int i = 0; i < 20'000; ++i) {
        expected.push_back(call_of(numbers, numbers() % 1000));
        list.push_back(expected.back());
        const std::size_t changed = numbers() % expected.size();
        expected[changed].flags = 1;
        list.set(changed, expected[changed]);
    }
    expect_equal(list, expected);
}

TEST(CallList, IsPutInOrderWithoutRepetitions) {
    Numbers numbers(2);
    for (const std::uint64_t times : {1U, 30U, 100'000U}) {
        CallList list;
        std::vector<Call> expected;
        for (int i = 0; i < 2000; ++i) {
            expected.push_back(i % 3 == 2 ? expected.back() : call_of(numbers, numbers() % times));
            list.push_back(expected.back());
        }
        list.put_in_order();
        std::stable_sort(expected.begin(), expected.end(),
                         [](const Call &a, const Call &b) { return a.time_ns < b.time_ns; });
        expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
        expect_equal(list, expected);
        const auto found = std::lower_bound(
            list.begin(), list.end(), times / 2,
            [](const Call &call, std::uint64_t time_ns) { return call.time_ns < time_ns; });
        EXPECT_EQ(found - list.begin(), std::ranges::count_if(expected, [&](const Call &call) {
                      return call.time_ns < times / 2;
                  }));
    }
}

TEST(LaunchList, HasWhatWasPutIn) {
    Numbers numbers(3);
    LaunchList list;
    std::vector<Launch> expected;
    for (int i = 0; i < 20'000; ++i) {
        expected.push_back(launch_of(numbers, numbers() % 1000));
        list.push_back(expected.back());
        const std::size_t changed = numbers() % expected.size();
        Launch &launch = expected[changed];
        launch.shape_index = static_cast<model::Index>(numbers() % 4);
        if (i > 10'000)
            launch.replay = static_cast<std::uint32_t>(i);
        list.set(changed, launch);
        launch.order = static_cast<std::uint32_t>(i);
        list.set_order(changed, launch.order);
    }
    expect_equal(list, expected);
}

TEST(LaunchList, IsPutInOrderWithoutRepetitions) {
    Numbers numbers(4);
    LaunchList list;
    std::vector<Launch> expected;
    for (int i = 0; i < 2000; ++i) {
        expected.push_back(launch_of(numbers, numbers() % 50));
        list.push_back(expected.back());
    }
    list.put_in_order();
    const auto key = [](const Launch &launch) {
        return std::tuple(launch.time_ns, launch.tid, launch.plan);
    };
    std::stable_sort(expected.begin(), expected.end(),
                     [&](const Launch &a, const Launch &b) { return key(a) < key(b); });
    expected.erase(std::unique(expected.begin(), expected.end(),
                               [&](const Launch &a, const Launch &b) {
                                   return key(a) == key(b) && a.shape == b.shape;
                               }),
                   expected.end());
    expect_equal(list, expected);
}

TEST(CallJoins, HaveWhatWasSet) {
    Numbers numbers(5);
    for (const unsigned kinds : {1U, 2U, 3U, 4U}) {
        CallJoins joins(300);
        std::vector<CallJoin> expected(300);
        for (int i = 0; i < 2000; ++i) {
            const std::size_t call = numbers() % expected.size();
            CallJoin &join = expected[call];
            join.operation = static_cast<model::Index>(numbers());
            if (kinds > 1)
                join.launch = static_cast<std::uint32_t>(numbers() % 9);
            join.launches = join.launch == model::NONE ? 0 : 1;
            join.rung = join.launch == model::NONE ? Rung::Process : Rung::Exact;
            if (kinds > 2 && i > 1000)
                join.rung = Rung::Inferred;
            if (kinds > 3 && i > 500)
                join.launches = static_cast<std::uint32_t>(numbers() % 3);
            joins.set(call, join);
        }
        for (std::size_t call = 0; call < expected.size(); ++call) {
            EXPECT_EQ(joins[call], expected[call]);
            EXPECT_EQ(joins.operation(call), expected[call].operation);
            EXPECT_EQ(joins.launch(call), expected[call].launch);
        }
    }
}

TEST(PassageLog, HasWhatWasPutIn) {
    Numbers numbers(6);
    PassageLog log;
    std::vector<Passage> expected;
    const auto any = [&] { return numbers() >> (numbers() % 64); };
    for (int i = 0; i < 2000; ++i) {
        expected.push_back({any(), any(), i % 5 == 0 ? 0 : any(), i % 7 == 0 ? 0 : any()});
        log.push_back(expected.back());
    }
    const auto is_gone = [](const Passage &passage) { return passage.end_steps % 2 == 1; };
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(log.size(), expected.size());
        PassageLog::Reader reader(log);
        Passage passage;
        for (const Passage &one : expected) {
            ASSERT_TRUE(reader.next(passage));
            ASSERT_EQ(passage, one);
        }
        EXPECT_FALSE(reader.next(passage));
        log.erase_if(is_gone);
        std::erase_if(expected, is_gone);
    }
}

} // namespace
} // namespace collwire::nccl
