// SPDX-License-Identifier: Apache-2.0
// A file is read as it is, also while a tracer has its probes in it.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "collwire/nccl_layout.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "tests/root/bpf_here.h"
#include "userspace/elf/file_bytes.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"

extern "C" __attribute__((noinline, visibility("default"))) int file_bytes_test_probed(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

namespace collwire::loader {
namespace {

constexpr const char *SELF = "/proc/self/exe";
constexpr unsigned char BREAKPOINT = 0xcc;

TEST(FileBytes, WithProbesInTheFile) {
    if (const std::string reason = test::no_bpf_because(); !reason.empty())
        GTEST_SKIP() << reason;
    const auto maps = SharedMaps::create({});
    ASSERT_TRUE(maps) << maps.failure().message;
    Skeleton<::nccl> programs{"NCCL programs"};
    const auto opened = programs.open();
    ASSERT_TRUE(opened) << opened.failure().message;
    // Any program that does nothing here.
    bpf_program *program = nullptr;
    bpf_object__for_each_program(program, programs.object())
        bpf_program__set_autoload(program, program == programs->progs.comm_ends);
    const auto loaded = programs.load(**maps);
    ASSERT_TRUE(loaded) << loaded.failure().message;
    bpf_uprobe_opts where{};
    where.sz = sizeof(where);
    where.func_name = "file_bytes_test_probed";
    bpf_link *link =
        bpf_program__attach_uprobe_opts(programs->progs.comm_ends, -1, SELF, 0, &where);
    ASSERT_NE(link, nullptr) << std::strerror(errno);
    EXPECT_EQ(file_bytes_test_probed(7), 7);
    EXPECT_EQ(*reinterpret_cast<const unsigned char *>(&file_bytes_test_probed), BREAKPOINT)
        << "the probe is in this process's code";
    const auto mapped = elf::FileBytes::open(SELF);
    ASSERT_TRUE(mapped) << mapped.failure().message;
    std::ifstream file(SELF, std::ios::binary);
    const std::string read{std::istreambuf_iterator<char>(file), {}};
    const std::string_view seen{reinterpret_cast<const char *>(mapped->bytes().data()),
                                mapped->bytes().size()};
    EXPECT_TRUE(seen == read);
    bpf_link__destroy(link);
}

} // namespace
} // namespace collwire::loader
