// SPDX-License-Identifier: Apache-2.0
// Posts of NCCL's queue pairs in slices: where the trap is, and what is counted by operation. The
// queue pairs, and NCCL's count of steps, are those of a test double.
#include "tests/root/posts_chains.h"

#include <cstring>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "userspace/loader/take_off.h"
#include "userspace/process/process_view.h"

namespace collwire::test {
namespace {

constexpr std::uint64_t HOUR_NS = 3'600'000'000'000;
constexpr std::uint64_t CONNECTION = 0x5e000;
constexpr std::byte TRAP{0xcc};

std::uint64_t make_queue_pair(ChildState &state, std::uint64_t qpn) {
    return reinterpret_cast<std::uint64_t>(&state.add_qp(static_cast<std::uint32_t>(qpn), false));
}

// Returns the address of the count.
std::uint64_t set_steps(ChildState &state, std::uint64_t steps) {
    std::memcpy(state.data.data(), &steps, sizeof steps);
    return reinterpret_cast<std::uint64_t>(state.data.data());
}

// As NET/IB does: a write, and one with immediate data.
std::uint64_t post_message(ChildState &state, std::uint64_t bytes) {
    post_chain(state, *state.qps[0],
               {{OPCODE_WRITE, {static_cast<std::uint32_t>(bytes)}}, {OPCODE_WRITE_IMM, {}}});
    return state.qps[0]->posts;
}

std::uint64_t post_on_the_last(ChildState &state, std::uint64_t bytes) {
    post_chain(state, *state.qps.back(), {{OPCODE_WRITE, {static_cast<std::uint32_t>(bytes)}}});
    return state.qps.back()->posts;
}

// The first byte of the instruction that has the probe on post_send.
std::optional<std::byte> instruction_of(const PostsRecorder &recorder, pid_t pid) {
    const source::PlannedProbe probe = recorder.post_send_probes().at(0);
    process::ProcessView view{pid};
    if (!view.refresh())
        return std::nullopt;
    for (const process::Mapping &mapping : view.mappings())
        if (mapping.executable && mapping.path == probe.module_or_file &&
            probe.offset_bytes >= mapping.file_offset &&
            probe.offset_bytes - mapping.file_offset < mapping.end - mapping.begin)
            if (const auto byte = view.read<std::byte>(mapping.begin +
                                                       (probe.offset_bytes - mapping.file_offset)))
                return *byte;
    return std::nullopt;
}

// A process that is NCCL's alone, in a slice that ends when it is asked to.
class PostSlices : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        child.emplace(FAKE_PROVIDER_1);
        qp = child->run(make_queue_pair, 17);
        steps_at = child->run(set_steps, 4);
        sources::PostsOptions options;
        options.slices = {1, HOUR_NS};
        options.nccl_queue_pairs = [this](std::uint32_t tgid) -> const source::NcclQueuePairs * {
            if (static_cast<pid_t>(tgid) != child->pid())
                return nullptr;
            of_nccl = {are_derived, {qp}, {{CONNECTION, steps_at, {qp}}}};
            return &of_nccl;
        };
        recorder.emplace(std::move(options));
        recorder->see_qp(child->pid(), qp);
    }
    void pause() {
        recorder->sample();
        recorder->source->on_due();
        recorder->sample();
    }
    [[nodiscard]] bool has_trap() const {
        const auto byte = instruction_of(*recorder, child->pid());
        EXPECT_TRUE(byte.has_value());
        return byte == TRAP;
    }

    bool are_derived = true;
    std::optional<Child> child;
    std::uint64_t qp = 0, steps_at = 0;
    source::NcclQueuePairs of_nccl;
    std::optional<PostsRecorder> recorder;
};

TEST_F(PostSlices, WholeOperationsAreCountedAndTheTrapGoes) {
    EXPECT_TRUE(has_trap()) << "counted until its owner is known";
    recorder->sample();
    EXPECT_TRUE(has_trap());
    child->run(post_message, 100); // of an operation that had started
    child->run(set_steps, 8);
    child->run(post_message, 200);
    child->run(post_message, 300);
    child->run(set_steps, 12);
    child->run(post_message, 50);
    child->run(set_steps, 16);
    child->run(post_message, 7); // not over when the slice is
    recorder->source->on_due();
    EXPECT_FALSE(has_trap());
    child->run(post_message, 1000);
    recorder->sample();

    ASSERT_EQ(recorder->slices.size(), 2u);
    EXPECT_EQ(recorder->slices[0].counted, CW_POSTS_SLICE);
    EXPECT_EQ(recorder->slices[0].n_connections, 1u);
    EXPECT_EQ(recorder->slices[1].counted, CW_POSTS_PAUSED);
    ASSERT_EQ(recorder->operations.size(), 1u);
    const cw_post_operations &of = recorder->operations[0];
    EXPECT_EQ(of.connection, CONNECTION);
    EXPECT_EQ(of.tgid, static_cast<std::uint32_t>(child->pid()));
    EXPECT_EQ(of.from_steps, 4u);
    EXPECT_EQ(of.to_steps, 12u);
    EXPECT_EQ(of.bytes, 550u);
    EXPECT_EQ(of.posts, 3u);
    EXPECT_EQ(of.operations, 2u);
    EXPECT_EQ(of.edge_bytes, 107u);
    EXPECT_EQ(of.flags, 0u);
    EXPECT_EQ(recorder->counters(child->pid(), 17).posts, 5u) << "none in the pause";
}

TEST_F(PostSlices, NewSegmentStartsWithWhetherPostsAreCounted) {
    pause();
    const auto before = recorder->slices.size();
    recorder->sample(true);
    ASSERT_EQ(recorder->slices.size(), before + 1);
    EXPECT_EQ(recorder->slices.back().counted, CW_POSTS_PAUSED);
    EXPECT_EQ(recorder->slices.back().header.time_ns, recorder->slices[before - 1].header.time_ns);
}

TEST_F(PostSlices, UnreadableCountIsAFault) {
    steps_at = 0x10; // not mapped
    recorder->sample();
    child->run(post_message, 100);
    recorder->source->on_due();
    recorder->sample();
    ASSERT_EQ(recorder->operations.size(), 1u);
    EXPECT_EQ(recorder->operations[0].flags, CW_POST_OPERATIONS_FAULT);
    EXPECT_EQ(recorder->operations[0].to_steps, recorder->operations[0].from_steps);
}

TEST_F(PostSlices, SliceThatTheRecordingEndsIsComplete) {
    recorder->sample();
    for (const std::uint64_t steps : {8U, 12U, 16U}) {
        child->run(post_message, 10);
        child->run(set_steps, steps);
    }
    child->run(post_message, 10);
    recorder->source->end();
    recorder->sample();
    ASSERT_EQ(recorder->operations.size(), 1u);
    EXPECT_EQ(recorder->operations[0].bytes, 20u);
    EXPECT_TRUE(has_trap());
}

TEST_F(PostSlices, QueuePairOfAnotherOwnerIsCountedFromItsCreation) {
    pause();
    ASSERT_FALSE(has_trap());
    const auto other = child->run(make_queue_pair, 18);
    recorder->emit(CW_KIND_QP_CREATE, monotonic_ns(), child->pid(), other);
    EXPECT_TRUE(has_trap());
    child->run(post_on_the_last, 64);
    recorder->sample();
    EXPECT_EQ(total_bytes(recorder->counters(child->pid(), 18)), 64u);
    EXPECT_EQ(recorder->slices.back().counted, CW_POSTS_ALL);
    pause();
    EXPECT_TRUE(has_trap()) << "its owner is not known";
    recorder->emit(CW_KIND_QP_DESTROY, monotonic_ns(), child->pid(), other);
    pause();
    EXPECT_FALSE(has_trap());
}

TEST_F(PostSlices, QueuePairOfNcclsThreadIsNccls) {
    constexpr std::uint32_t THREAD = 77;
    recorder->emit(CW_KIND_QP_CREATE, monotonic_ns(), child->pid(), qp, "fake0", THREAD);
    recorder->see_qp(child->pid(), qp);
    pause();
    ASSERT_FALSE(has_trap());
    const auto other = child->run(make_queue_pair, 18);
    recorder->emit(CW_KIND_QP_CREATE, monotonic_ns(), child->pid(), other, "fake0", THREAD);
    recorder->emit(CW_KIND_QP_STATE, monotonic_ns(), child->pid(), other, "fake0", THREAD);
    pause();
    EXPECT_FALSE(has_trap());
}

TEST_F(PostSlices, AnotherProcessIsAlwaysCounted) {
    Child other{FAKE_PROVIDER_1};
    const auto its = other.run(make_queue_pair, 20);
    recorder->see_qp(other.pid(), its);
    pause();
    EXPECT_TRUE(has_trap());
    other.run(post_message, 64);
    recorder->sample();
    EXPECT_EQ(total_bytes(recorder->counters(other.pid(), 20)), 64u);
    EXPECT_TRUE(recorder->slices.empty());
    other.kill_hard();
    pause();
    EXPECT_FALSE(has_trap());
}

TEST_F(PostSlices, BytesThatAreNotDerivedAreAlwaysCounted) {
    are_derived = false;
    pause();
    EXPECT_TRUE(has_trap());
    EXPECT_TRUE(recorder->slices.empty());
}

TEST_F(PostSlices, NewProcessOfTheLibraryHasTheTrapInSlicesOnly) {
    pause();
    Child later{FAKE_PROVIDER_1};
    EXPECT_NE(instruction_of(*recorder, later.pid()), TRAP);
    recorder->see_qp(later.pid(), later.run(make_queue_pair, 30));
    EXPECT_EQ(instruction_of(*recorder, later.pid()), TRAP);
    later.kill_hard();
}

TEST_F(PostSlices, TakenOffForTheBudgetStaysOff) {
    recorder->sample();
    recorder->source->take_off("probes", "--budget");
    while (loader::is_taking_off())
        std::this_thread::yield();
    EXPECT_FALSE(has_trap());
    pause();
    pause();
    EXPECT_FALSE(has_trap());
}

TEST(SliceSchedule, FollowsThePeriodFromTheFirstSlice) {
    using sources::PostsCounted;
    sources::SliceSchedule schedule({10, 60});
    EXPECT_EQ(schedule.at(5, false), PostsCounted::All);
    EXPECT_EQ(schedule.due_ns(), 0u);
    EXPECT_EQ(schedule.at(100, true), PostsCounted::Slice);
    EXPECT_EQ(schedule.due_ns(), 110u);
    EXPECT_EQ(schedule.at(109, true), PostsCounted::Slice);
    EXPECT_EQ(schedule.at(112, true), PostsCounted::Paused);
    EXPECT_EQ(schedule.due_ns(), 160u);
    EXPECT_EQ(schedule.at(160, true), PostsCounted::Slice);
    schedule.placed(163);
    EXPECT_EQ(schedule.due_ns(), 173u) << "from when the probes are in place";
    EXPECT_EQ(schedule.at(165, false), PostsCounted::All);
    EXPECT_EQ(schedule.at(166, true), PostsCounted::Slice) << "starts anew";
    EXPECT_EQ(schedule.at(400, true), PostsCounted::Paused) << "it stood still";
    EXPECT_EQ(schedule.due_ns(), 450u);
}

TEST(SliceSchedule, WithoutSlicesEverythingIsCounted) {
    sources::SliceSchedule schedule({0, 0});
    EXPECT_EQ(schedule.at(100, true), sources::PostsCounted::All);
    EXPECT_EQ(schedule.due_ns(), 0u);
}

} // namespace
} // namespace collwire::test
