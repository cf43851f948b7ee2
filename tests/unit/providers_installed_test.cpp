// SPDX-License-Identifier: Apache-2.0
// The driver libraries of the machine that the tests run on, as the distribution built them.
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "userspace/elf/probe_point.h"
#include "userspace/verbs/installed.h"
#include "userspace/verbs/ops_scan.h"
#include "userspace/verbs/wr_scan.h"

namespace collwire::elf {
namespace {

// Of the installed driver of this name; nothing if there is none.
std::optional<ElfImage> driver(const std::string &stem) {
    for (const std::string &path : verbs::installed_providers())
        if (verbs::stem_of_library(path) == stem)
            if (auto bytes = read_library_file(path))
                if (auto image = ElfImage::parse(std::move(*bytes)))
                    return std::move(*image);
    return std::nullopt;
}

class InstalledDriver : public testing::TestWithParam<const char *> {};

TEST_P(InstalledDriver, PostSendIsFoundOnAnEmulatedInstruction) {
    const auto image = driver(GetParam());
    if (!image)
        GTEST_SKIP() << "no " << GetParam() << " driver of rdma-core is installed";
    const auto found = verbs::find_post_send(*image);
    ASSERT_TRUE(found.ok()) << found.failure().message;
    ASSERT_FALSE(found->addresses.empty());
    for (const std::uint64_t address : found->addresses) {
        const auto point = choose_probe_point(image->code(), address, ARGUMENT_1 | ARGUMENT_2);
        ASSERT_TRUE(point.ok());
        EXPECT_TRUE(point->emulated) << std::hex << address << ": " << point->instruction;
    }
}
INSTANTIATE_TEST_SUITE_P(Names, InstalledDriver, testing::Values("rxe", "mlx5", "efa", "irdma"));

class InstalledCalls : public testing::TestWithParam<const char *> {};

TEST_P(InstalledCalls, FunctionsOfTheCallsAreFound) {
    const auto image = driver(GetParam());
    if (!image)
        GTEST_SKIP() << "no " << GetParam() << " driver of rdma-core is installed";
    const auto found = verbs::find_wr_functions(*image);
    if (found.empty() && std::string{GetParam()} == "mlx5")
        GTEST_SKIP() << "this build's functions are stored over branches, which are not followed: "
                        "only queue pairs show them";
    std::map<cw_verbs_call, std::size_t> functions;
    for (const verbs::WrFunction &function : found) {
        EXPECT_TRUE(image->is_code(function.address));
        ++functions[function.call];
    }
    for (const cw_verbs_call call :
         {CW_CALL_WR_SEND, CW_CALL_WR_SEND_IMM, CW_CALL_WR_WRITE, CW_CALL_WR_WRITE_IMM,
          CW_CALL_WR_READ, CW_CALL_SET_SGE, CW_CALL_SET_SGE_LIST, CW_CALL_SET_INLINE,
          CW_CALL_SET_INLINE_LIST, CW_CALL_WR_COMPLETE, CW_CALL_WR_ABORT})
        EXPECT_GE(functions[call], 1u) << call;
}
INSTANTIATE_TEST_SUITE_P(Names, InstalledCalls, testing::Values("rxe", "mlx5"));

} // namespace
} // namespace collwire::elf
