// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "userspace/elf/elf_image.h"
#include "userspace/elf/exported_functions.h"
#include "userspace/verbs/control_path.h"

namespace collwire::verbs {
namespace {

std::set<std::string> names_of(const ControlPath &path) {
    std::set<std::string> names;
    for (const ControlFunction &function : path.functions)
        names.insert(function.name);
    return names;
}

std::map<std::string, std::uint64_t> all_exported() {
    return {{"ibv_create_qp", 1},         {"ibv_modify_qp", 2},      {"ibv_destroy_qp", 3},
            {"ibv_ack_async_event", 4},   {"ibv_cmd_create_qp", 5},  {"ibv_cmd_create_qp_ex", 6},
            {"ibv_cmd_create_qp_ex2", 7}, {"ibv_cmd_modify_qp", 8},  {"ibv_cmd_modify_qp_ex", 9},
            {"ibv_cmd_destroy_qp", 10},   {"ibv_post_srq_recv", 11}, {"ibv_cmd_post_send", 12}};
}

TEST(ControlPath, HasOneFunctionForEachCallThatIsMade) {
    const ControlPath path = control_path(all_exported());
    EXPECT_EQ(names_of(path), (std::set<std::string>{"ibv_cmd_create_qp", "ibv_cmd_create_qp_ex",
                                                     "ibv_cmd_create_qp_ex2", "ibv_cmd_modify_qp",
                                                     "ibv_cmd_modify_qp_ex", "ibv_cmd_destroy_qp",
                                                     "ibv_ack_async_event"}));
    EXPECT_EQ(path.missing, "");
    const auto modify =
        std::ranges::find(path.functions, "ibv_cmd_modify_qp_ex", &ControlFunction::name);
    EXPECT_EQ(modify->address, 9U);
    EXPECT_EQ(modify->call, ControlCall::Modify);
}

TEST(ControlPath, PublicFunctionsStandInForPrivateOnes) {
    auto exported = all_exported();
    std::erase_if(exported, [](const auto &one) { return one.first.starts_with("ibv_cmd_"); });
    const ControlPath path = control_path(exported);
    EXPECT_EQ(names_of(path), (std::set<std::string>{"ibv_create_qp", "ibv_modify_qp",
                                                     "ibv_destroy_qp", "ibv_ack_async_event"}));
    EXPECT_NE(path.missing.find("ibv_create_qp_ex"), std::string::npos) << path.missing;
}

TEST(ControlPath, OfAnotherLibraryIsEmptyAndSaysSo) {
    const ControlPath path = control_path({{"main", 1}});
    EXPECT_TRUE(path.functions.empty());
    EXPECT_EQ(path.missing, "creations are not seen, changes are not seen, ends are not seen, "
                            "asynchronous events are not seen");
}

TEST(Libibverbs, IsKnownByItsName) {
    EXPECT_TRUE(is_libibverbs("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"));
    EXPECT_TRUE(is_libibverbs("/tmp/libibverbs.so.1 (deleted)"));
    EXPECT_FALSE(is_libibverbs("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"));
    EXPECT_FALSE(is_libibverbs("/usr/lib/libmlx5.so.1"));
}

// The library of the machine that the tests run on, as the distribution built it.
TEST(Libibverbs, InstalledOneHasEveryFunction) {
    const auto paths = installed_libibverbs();
    if (paths.empty())
        GTEST_SKIP() << "libibverbs is not installed";
    for (const std::string &path : paths) {
        auto bytes = elf::read_library_file(path);
        ASSERT_TRUE(bytes.ok()) << bytes.failure().message;
        const auto exported = elf::exported_functions(*bytes);
        ASSERT_TRUE(exported.ok()) << exported.failure().message;
        const ControlPath found = control_path(*exported);
        EXPECT_EQ(names_of(found), names_of(control_path(all_exported()))) << path;
        EXPECT_EQ(found.missing, "") << path;
        const auto image = elf::ElfImage::parse(std::move(*bytes));
        ASSERT_TRUE(image.ok());
        for (const ControlFunction &function : found.functions)
            EXPECT_TRUE(image->is_code(function.address)) << function.name;
    }
}

} // namespace
} // namespace collwire::verbs
