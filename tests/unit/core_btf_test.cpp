// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include <bpf/btf.h>
#include <unistd.h>

#include "userspace/loader/core_btf.h"
#include "userspace/loader/privileges.h"

namespace collwire::loader {
namespace {

using Types = std::unique_ptr<btf, decltype(&btf__free)>;

TEST(TypeNames, FlavoursAreTheTypeItself) {
    const Types types(btf__new_empty(), btf__free);
    const int number = btf__add_int(types.get(), "int", 4, BTF_INT_SIGNED);
    btf__add_struct(types.get(), "task_struct", 8);
    btf__add_field(types.get(), "pid", number, 0, 0);
    btf__add_struct(types.get(), "task_struct___old", 8);
    btf__add_struct(types.get(), "", 4);
    btf__add_enum(types.get(), "ib_mtu", 4);
    EXPECT_EQ(type_names(types.get()), (std::vector<std::string>{"ib_mtu", "task_struct"}));
}

// Every kernel with BTF has these two, one inside of the other.
TEST(CoreBtf, HasWhatWasAskedForWithItsOffsets) {
    if (!has_kernel_btf())
        GTEST_SKIP() << "this kernel has no BTF";
    KernelBtf kernel;
    const auto made = CoreBtf::make(kernel, {"task_struct", "no_such_type"});
    ASSERT_TRUE(made) << made.failure().message;
    const Types types(btf__parse(made->path().c_str(), nullptr), btf__free);
    ASSERT_NE(types.get(), nullptr);
    const auto id = btf__find_by_name_kind(types.get(), "task_struct", BTF_KIND_STRUCT);
    ASSERT_GT(id, 0);
    EXPECT_LT(btf__find_by_name_kind(types.get(), "no_such_type", BTF_KIND_STRUCT), 0);
    const auto *task = btf__type_by_id(types.get(), static_cast<__u32>(id));
    const auto expected = kernel.member_offset("vmlinux", "task_struct", "comm");
    ASSERT_TRUE(expected);
    const auto *members = btf_members(task);
    const auto *comm = std::find_if(members, members + btf_vlen(task), [&](const auto &member) {
        return std::string_view(btf__name_by_offset(types.get(), member.name_off)) == "comm";
    });
    ASSERT_NE(comm, members + btf_vlen(task));
    EXPECT_EQ(comm->offset / 8, *expected);
    EXPECT_LT(btf__type_cnt(types.get()), 2000u) << "only what was asked for";
}

// As Linux 7 has socket_lock_t in struct sock: a member without a name whose struct has a tag.
TEST(CoreBtf, HasMembersOfWhatHasATagAndNoName) {
    btf *linux_7 = btf__new_empty();
    const int number = btf__add_int(linux_7, "int", 4, BTF_INT_SIGNED);
    const int tagged = btf__add_struct(linux_7, "slock_owned", 8);
    btf__add_field(linux_7, "owned", number, 32, 0);
    const int either = btf__add_union(linux_7, "", 8);
    btf__add_field(linux_7, "", tagged, 0, 0);
    const int lock = btf__add_struct(linux_7, "", 8);
    btf__add_field(linux_7, "", either, 0, 0);
    const int name = btf__add_typedef(linux_7, "socket_lock_t", lock);
    btf__add_struct(linux_7, "sock", 24);
    btf__add_field(linux_7, "opaque", tagged, 0, 0);
    btf__add_field(linux_7, "sk_lock", name, 128, 0);
    KernelBtf kernel(linux_7);
    const auto made = CoreBtf::make(kernel, {"sock"});
    ASSERT_TRUE(made) << made.failure().message;
    KernelBtf copied(btf__parse(made->path().c_str(), nullptr));
    EXPECT_EQ(copied.member_offset("vmlinux", "sock", "sk_lock.owned"), 20U);
    EXPECT_EQ(copied.member_offset("vmlinux", "sock", "opaque.owned"), std::nullopt);
}

} // namespace
} // namespace collwire::loader
