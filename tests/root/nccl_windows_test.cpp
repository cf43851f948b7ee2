// SPDX-License-Identifier: Apache-2.0
// What is read together: operations side by side, and the lists of a node's proxies.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <sys/mman.h>

#include "collwire/loss_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nccl_tables.h"
#include "collwire/record_kinds.h"
#include "tests/root/nccl_programs.h"

namespace collwire::test {
namespace {

constexpr std::size_t PAGE_BYTES = 4096;
constexpr std::int32_t N_OPS = 100;

class NcclWindows : public NcclPrograms {
protected:
    void TearDown() override {
        if (pages_ != MAP_FAILED)
            munmap(pages_, POOL_BYTES + PAGE_BYTES);
        NcclPrograms::TearDown();
    }

    // The pool ends where memory does.
    void make_pool() {
        pages_ = mmap(nullptr, POOL_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(pages_, MAP_FAILED);
        ASSERT_EQ(mprotect(static_cast<std::byte *>(pages_) + POOL_BYTES, PAGE_BYTES, PROT_NONE),
                  0);
        pool_ = reinterpret_cast<Op *>(static_cast<std::byte *>(pages_) + POOL_BYTES) - POOL_OPS;
        proxies_[1] = {};
    }

    // The same operations, the i-th of them at places[i] of the pool.
    void place(const std::vector<std::int32_t> &places) {
        std::fill_n(pool_, POOL_OPS, Op{});
        for (std::size_t i = 0; i < places.size(); ++i) {
            Op &op = pool_[places[i]];
            op.connection = own_ops_[0].connection;
            op.nbytes = 1000 + i;
            op.next = i + 1 < places.size() ? places[i + 1] : -1;
        }
        proxies_[0] = {pool_,
                       0,
                       says_.value_or(static_cast<std::int32_t>(places.size())),
                       -1,
                       places.front(),
                       places.back()};
    }

    void expect_all(const std::vector<std::int32_t> &places) {
        place(places);
        launch();
        const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
        ASSERT_EQ(launches.size(), 1U);
        EXPECT_EQ(launches[0].n_ops, places.size());
        EXPECT_EQ(launches[0].flags & (CW_NCCL_LAUNCH_TRUNCATED | CW_NCCL_LAUNCH_FAULT), 0);
        EXPECT_TRUE(shape_ == 0 || launches[0].shape == shape_) << "they are the same operations";
        shape_ = launches[0].shape;
    }

    void set_users(std::uint64_t users) {
        const bpf_map *const windows =
            bpf_object__find_map_by_name(programs_.object(), "ops_windows");
        ASSERT_NE(windows, nullptr);
        const std::size_t bytes =
            bpf_map__value_size(windows) * static_cast<std::size_t>(libbpf_num_possible_cpus());
        std::vector<std::uint64_t> values(bytes / sizeof(std::uint64_t));
        for (std::size_t at = 0; at < bytes; at += bpf_map__value_size(windows))
            values[at / sizeof(std::uint64_t)] = users;
        const std::uint32_t zero = 0;
        EXPECT_EQ(bpf_map__update_elem(windows, &zero, sizeof(zero), values.data(), bytes, BPF_ANY),
                  0);
    }

    static constexpr std::int32_t POOL_OPS = 2 * N_OPS;
    static constexpr std::size_t POOL_BYTES =
        (POOL_OPS * sizeof(Op) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *pages_ = MAP_FAILED;
    Op *pool_ = nullptr;
    std::uint64_t shape_ = 0;
    std::optional<std::int32_t> says_; // how many operations the list has
};

std::vector<std::int32_t> in_a_row(std::int32_t first) {
    std::vector<std::int32_t> places(N_OPS);
    std::iota(places.begin(), places.end(), first);
    return places;
}

TEST_P(NcclWindows, OperationsLieInAnyOrder) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    expect_all(in_a_row(0));
    EXPECT_EQ(emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).size(), std::size_t{N_OPS});
    expect_all(in_a_row(POOL_OPS - N_OPS)); // the last window goes beyond the pool
    std::vector<std::int32_t> places = in_a_row(0);
    std::ranges::reverse(places);
    expect_all(places);
    for (std::int32_t &place : places)
        place *= 2;
    expect_all(places);
    std::ranges::reverse(places);
    expect_all(places);
    std::mt19937 chance{5};
    for (int i = 0; i < 20; ++i) {
        std::ranges::shuffle(places, chance);
        expect_all(places);
    }
    EXPECT_TRUE(emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).empty()) << "emitted once";
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

// How many a list has is NCCL's word alone: what is there is what counts.
TEST_P(NcclWindows, AListHasOtherThanItSays) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    std::vector<std::int32_t> places = in_a_row(POOL_OPS - N_OPS);
    for (int i = 0; i < 2; ++i) {
        for (const std::int32_t says : {-1, 0, 1, 2, 3, 7, 8, 9, N_OPS - 1, N_OPS + 1, 1 << 30}) {
            says_ = says;
            expect_all(places);
        }
        std::ranges::reverse(places);
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

// A launch of few is read at once, and not one operation more.
TEST_P(NcclWindows, AListOfFew) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    for (std::int32_t n = 1; n < 10; ++n) {
        std::vector<std::int32_t> places(static_cast<std::size_t>(n));
        std::iota(places.begin(), places.end(), POOL_OPS - n);
        shape_ = 0;
        expect_all(places);
        std::ranges::reverse(places);
        expect_all(places);
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

// Another thread may be in the middle of it on the same CPU.
TEST_P(NcclWindows, AWindowThatIsTaken) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    expect_all(in_a_row(0));
    set_users(1);
    expect_all(in_a_row(0));
    set_users(0);
    expect_all(in_a_row(0));
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

TEST_P(NcclWindows, OperationThatCannotBeRead) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    std::vector<std::int32_t> places = in_a_row(POOL_OPS - N_OPS);
    place(places);
    pool_[places.back()].next = POOL_OPS;
    proxies_[0].next_ops_end = POOL_OPS;
    launch();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, std::uint32_t{N_OPS});
    EXPECT_NE(launches[0].flags & CW_NCCL_LAUNCH_FAULT, 0);
}

// Ranks on a node, and those of them to whose proxies something is given.
TEST_P(NcclWindows, ListsOfSomeProxies) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    const std::vector<std::vector<std::int32_t>> given{{0}, {19}, {0, 3, 4, 19}, {5, 11}, {}};
    std::vector<ProxyOps> proxies(20);
    comm_.local_ranks = 20;
    proxy_state_.ops = proxies.data();
    for (const std::vector<std::int32_t> &places : given) {
        std::ranges::fill(proxies, ProxyOps{});
        std::vector<std::uint32_t> expected;
        std::fill_n(pool_, POOL_OPS, Op{});
        std::int32_t at = 0;
        for (const std::int32_t proxy : places) {
            // As many that those of a list are read together, or one by one.
            const std::int32_t n = proxy == 3 || proxy == 11 ? 6 : 2;
            for (std::int32_t i = 0; i < n; ++i) {
                pool_[at + i].connection = own_ops_[0].connection;
                pool_[at + i].nbytes = 5000 + static_cast<std::uint64_t>(proxy);
                pool_[at + i].next = at + i + 1;
                expected.push_back(static_cast<std::uint32_t>(proxy));
            }
            proxies[static_cast<std::size_t>(proxy)] = {pool_, 0, n, -1, at, at + n - 1};
            at += n;
        }
        launch();
        std::vector<std::uint32_t> found;
        for (const auto &ops : emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS))
            found.push_back(ops.proxy_indices[0]);
        EXPECT_EQ(found, expected);
        const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
        ASSERT_EQ(launches.size(), 1U);
        EXPECT_EQ(launches[0].n_ops, expected.size());
        EXPECT_EQ((launches[0].flags & CW_NCCL_LAUNCH_LOCAL) != 0, places.empty());
    }
    EXPECT_EQ(lost(CW_LOSS_NCCL_FAULT), 0U);
}

// The list after the first is read with it: it may be in memory that is not there.
TEST_P(NcclWindows, OneOfTwoListsCanBeRead) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    auto *const lists = reinterpret_cast<ProxyOps *>(static_cast<std::byte *>(pages_) + POOL_BYTES);
    lists[-1] = proxies_[0];
    comm_.local_ranks = 2;
    proxy_state_.ops = lists - 1;
    launch();
    const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].n_ops, 2U);
    EXPECT_NE(launches[0].flags & CW_NCCL_LAUNCH_FAULT, 0);
}

// That a launch was emitted is at hand, but no longer than it is sure to be known to the recorder.
TEST_P(NcclWindows, ShapesThatAreForgotten) {
    ASSERT_NO_FATAL_FAILURE(make_pool());
    const auto n_emitted = [this] {
        launch();
        return emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS).size();
    };
    EXPECT_NE(n_emitted(), 0U);
    const cw_nccl_shape_key key{.shape = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).front().shape,
                                .tgid = static_cast<__u32>(getpid()),
                                .reserved = 0};
    ASSERT_EQ(bpf_map__delete_elem(programs_->maps.shapes, &key, sizeof(key), 0), 0);
    programs_->bss->n_shapes += 4000;
    EXPECT_EQ(n_emitted(), 0U);
    programs_->bss->n_shapes += 200;
    EXPECT_NE(n_emitted(), 0U);
    EXPECT_EQ(n_emitted(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Walks, NcclWindows, testing::Values("proxy_start", "proxy_start_bounded"),
                         [](const auto &of) { return std::string{of.param}; });

} // namespace
} // namespace collwire::test
