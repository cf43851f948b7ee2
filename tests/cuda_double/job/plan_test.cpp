// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/plan.h"

#include <gtest/gtest.h>

namespace collwire::job {
namespace {

std::string error_of(const std::string &text) {
    try {
        parse_plan(text);
    } catch (const PlanError &error) {
        return error.what();
    }
    return "";
}

TEST(job_plan, reads_communicators_and_steps) {
    const Plan plan = parse_plan("communicator tp block 2 # neighbours\n"
                                 "communicator odd list 1 3\n"
                                 "communicator few without 1 3\n"
                                 "tp broadcast 1KiB int8 root 1 inplace\n"
                                 "loop\n"
                                 "group\n"
                                 "  tp allreduce 3 float64 max config\n"
                                 "  world sendrecv 2MiB\n"
                                 "end\n"
                                 "capture tp 4\n"
                                 "  tp allgather 8B times 3\n"
                                 "end\n"
                                 "sleep 20ms\n"
                                 "abort odd stuck\n");
    ASSERT_EQ(plan.communicators.size(), 3U);
    EXPECT_EQ(plan.communicators[0].color_of(3), 1);
    EXPECT_EQ(plan.communicators[1].color_of(3), 0);
    EXPECT_EQ(plan.communicators[1].color_of(2), NCCL_SPLIT_NOCOLOR);
    EXPECT_EQ(plan.communicators[2].color_of(3), NCCL_SPLIT_NOCOLOR);
    EXPECT_EQ(plan.communicators[2].color_of(2), 0);
    ASSERT_EQ(plan.once.size(), 1U);
    const Operation &broadcast = plan.once[0].operation;
    EXPECT_EQ(broadcast.kind, OperationKind::Broadcast);
    EXPECT_EQ(broadcast.bytes, 1024U);
    EXPECT_EQ(broadcast.type, ncclInt8);
    EXPECT_EQ(broadcast.root, 1);
    EXPECT_TRUE(broadcast.is_in_place);
    ASSERT_EQ(plan.loop.size(), 4U);
    ASSERT_EQ(plan.loop[0].steps.size(), 2U);
    EXPECT_EQ(plan.loop[0].steps[0].operation.reduction, ncclMax);
    EXPECT_TRUE(plan.loop[0].steps[0].operation.uses_config);
    EXPECT_EQ(plan.loop[0].steps[1].operation.bytes, 2U << 20);
    EXPECT_EQ(plan.loop[1].number, 4);
    EXPECT_EQ(plan.loop[1].steps[0].operation.times, 3);
    EXPECT_EQ(broadcast.times, 1);
    EXPECT_EQ(plan.loop[2].number, 20);
    EXPECT_TRUE(plan.loop[3].is_stuck);
}

TEST(job_plan, repeats_what_is_in_a_group) {
    const Plan plan = parse_plan("group\n"
                                 "  repeat 3\n"
                                 "    world allreduce 8\n"
                                 "  end\n"
                                 "end\n");
    ASSERT_EQ(plan.loop.size(), 1U);
    ASSERT_EQ(plan.loop[0].steps.size(), 1U);
    const Step &repeat = plan.loop[0].steps[0];
    EXPECT_EQ(repeat.kind, StepKind::Repeat);
    EXPECT_EQ(repeat.number, 3);
    EXPECT_EQ(repeat.steps.size(), 1U);
}

TEST(job_plan, without_a_loop_everything_is_repeated) {
    const Plan plan = parse_plan("world allreduce 8\nwait\n");
    EXPECT_TRUE(plan.once.empty());
    EXPECT_EQ(plan.loop.size(), 2U);
}

TEST(job_plan, names_the_line_of_a_mistake) {
    EXPECT_EQ(error_of("world allreduce 8\nhalf allreduce 8\n"),
              "plan, line 2: half is neither a step nor a communicator");
    EXPECT_EQ(error_of("world dance"), "plan, line 1: dance is no operation");
    EXPECT_EQ(error_of("world allreduce 8GB"), "plan, line 1: 8GB is no size: B, KiB or MiB");
    EXPECT_EQ(error_of("world sendrecv 8 inplace"), "plan, line 1: sendrecv has no form in place");
    for (const char *wrong : {"world reduce 8 times 0", "world reduce 8 times 2 inplace"})
        EXPECT_EQ(error_of(wrong),
                  "plan, line 1: times takes a number of calls, of which none is in place");
    EXPECT_EQ(error_of("group\nwait\nend"),
              "plan, line 2: only operations, groups and repeats in here");
    EXPECT_EQ(error_of("group\nworld allreduce 8\n"), "plan: an end is missing");
    EXPECT_EQ(error_of("communicator a block 2\ncapture world 2\na allreduce 8\nend"),
              "plan, line 3: a capture of world has no operations of another communicator");
    EXPECT_EQ(error_of("communicator a block 2\ncapture a 2\na allreduce 8\nend\n"
                       "world allreduce 8"),
              "");
    EXPECT_EQ(error_of("destroy world"), "plan, line 1: the world stays as long as the job");
    EXPECT_EQ(error_of("communicator a block"), "plan, line 1: block and stride take a number of "
                                                "ranks");
}

TEST(job_plan, built_in_plans_are_right) {
    for (const char *name : {"training", "everything", "abort"})
        EXPECT_NO_THROW(parse_plan(plan_text(name))) << name;
}

} // namespace
} // namespace collwire::job
