// SPDX-License-Identifier: Apache-2.0
// A shape is in each segment with a launch of it, and in no other.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "collwire/nccl_launch_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/sources/nccl/shapes.h"

namespace collwire::sources {
namespace {

constexpr std::uint32_t TGID = 7;
constexpr std::uint64_t COMM = 0x1000;

class Sink : public source::RecordSink {
public:
    void append(const cw_header &record) override {
        if (record.kind == CW_KIND_NCCL_SHAPE_TASK)
            tasks.push_back(reinterpret_cast<const cw_nccl_shape_task &>(record));
        else
            ops.push_back(reinterpret_cast<const cw_nccl_shape_ops &>(record));
    }
    std::vector<cw_nccl_shape_task> tasks;
    std::vector<cw_nccl_shape_ops> ops;
};

cw_nccl_shape_task task_of(std::uint64_t shape, std::uint32_t index) {
    cw_nccl_shape_task record{};
    record.header = {sizeof(record), CW_KIND_NCCL_SHAPE_TASK, 0, 1};
    record.tgid = TGID;
    record.comm = COMM;
    record.shape = shape;
    record.index = index;
    return record;
}

cw_nccl_shape_ops ops_of(std::uint64_t shape, std::uint32_t first) {
    cw_nccl_shape_ops record{};
    record.header = {sizeof(record), CW_KIND_NCCL_SHAPE_OPS, 0, 1};
    record.tgid = TGID;
    record.comm = COMM;
    record.shape = shape;
    record.first = first;
    record.n = 1;
    return record;
}

// A launch of a new shape, as the BPF programs emit it.
void launch_new(NcclShapes &shapes, std::uint64_t shape, std::uint32_t n_ops) {
    shapes.use(TGID, shape);
    shapes.add(task_of(shape, 0));
    for (std::uint32_t i = 0; i < n_ops; ++i)
        shapes.add(ops_of(shape, i));
}

std::size_t n_appended(NcclShapes &shapes) {
    Sink sink;
    shapes.append(sink);
    return sink.tasks.size() + sink.ops.size();
}

TEST(NcclShapes, AppearOnceInEachSegmentWithALaunch) {
    NcclShapes shapes;
    launch_new(shapes, 1, 3);
    launch_new(shapes, 2, 1);
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 0U) << "the programs emitted them";
    shapes.begin_segment();
    EXPECT_EQ(n_appended(shapes), 0U) << "nothing was launched in it";
    shapes.use(TGID, 1);
    shapes.use(TGID, 1);
    Sink sink;
    shapes.append(sink);
    ASSERT_EQ(sink.tasks.size(), 1U);
    ASSERT_EQ(sink.ops.size(), 3U);
    EXPECT_EQ(sink.ops[2].shape, 1U);
    EXPECT_EQ(sink.ops[2].first, 2U);
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 0U);
    // Launched at the end of one segment, emitted in the next.
    shapes.begin_segment();
    shapes.use(TGID, 2);
    shapes.begin_segment();
    EXPECT_EQ(n_appended(shapes), 2U);
    EXPECT_EQ(shapes.lost(), 0U);
}

TEST(NcclShapes, RecordsComeInAnyOrder) {
    NcclShapes shapes;
    for (const std::uint32_t first : {2U, 0U, 1U, 2U, 0U})
        shapes.add(ops_of(1, first));
    auto changed = ops_of(1, 1);
    changed.n_ops = 3;
    shapes.add(changed);
    shapes.begin_segment();
    shapes.use(TGID, 1);
    Sink sink;
    shapes.append(sink);
    ASSERT_EQ(sink.ops.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i)
        EXPECT_EQ(sink.ops[i].first, i);
    EXPECT_EQ(sink.ops[1].n_ops, 3U);
}

// All-to-all whose sizes are others each time.
TEST(NcclShapes, BytesAreBoundedOverAllProcesses) {
    constexpr std::size_t BOUND = 64U << 10U;
    NcclShapes shapes(BOUND);
    for (std::uint64_t shape = 1; shape <= 10'000; ++shape) {
        launch_new(shapes, shape, 16);
        EXPECT_LE(shapes.bytes(), BOUND);
    }
    EXPECT_EQ(n_appended(shapes), 0U);
    shapes.begin_segment();
    EXPECT_EQ(n_appended(shapes), 0U);
    EXPECT_EQ(shapes.lost(), 0U) << "they are not asked for";
    shapes.use(TGID, 10'000);
    EXPECT_EQ(n_appended(shapes), 17U);
    EXPECT_EQ(shapes.lost(), 0U);
    shapes.use(TGID, 1);
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 0U);
    EXPECT_EQ(shapes.lost(), 2U) << "launches that cannot be distinguished in this segment";
    launch_new(shapes, 1, 16); // the programs have forgotten it, too
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 0U);
    EXPECT_EQ(shapes.lost(), 2U);
    shapes.begin_segment();
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 17U);
}

TEST(NcclShapes, UsedShapesStay) {
    NcclShapes shapes(64U << 10U);
    launch_new(shapes, 1, 16);
    for (std::uint64_t shape = 2; shape <= 1'000; ++shape) {
        launch_new(shapes, shape, 16);
        shapes.use(TGID, 1);
    }
    shapes.begin_segment();
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 17U);
    EXPECT_EQ(shapes.lost(), 0U);
}

TEST(NcclShapes, AShapeThatIsDroppedWhileALaunchWaitsIsLost) {
    NcclShapes shapes(8U << 10U);
    launch_new(shapes, 1, 4);
    shapes.begin_segment();
    shapes.use(TGID, 1);
    for (std::uint64_t shape = 2; shape <= 50; ++shape)
        launch_new(shapes, shape, 16);
    EXPECT_EQ(n_appended(shapes), 0U);
    EXPECT_EQ(shapes.lost(), 1U);
}

TEST(NcclShapes, ProcessesAndWhatCouldNotBeRead) {
    NcclShapes shapes;
    launch_new(shapes, 1, 2);
    shapes.begin_segment();
    shapes.use(TGID + 1, 1);
    EXPECT_EQ(n_appended(shapes), 0U);
    shapes.use(TGID, 0); // its shape is unknown
    EXPECT_EQ(n_appended(shapes), 0U);
    shapes.use(TGID, 1);
    EXPECT_EQ(n_appended(shapes), 3U);
    EXPECT_EQ(shapes.lost(), 0U);
}

} // namespace
} // namespace collwire::sources
