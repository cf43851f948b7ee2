// SPDX-License-Identifier: Apache-2.0
// NCCL's parameters out of the memory of a process that runs it: this one, with the double.
#include "tests/unit/nccl_fixture.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include "userspace/nccl/memory/parameters.h"

namespace collwire::nccl::test {
namespace {

TEST_F(FakeNccl, ParametersOnceTheyAreUsed) {
    const auto layout = make_layout(*library_);
    ASSERT_TRUE(layout.ok()) << layout.failure().message;
    ASSERT_EQ(layout->parameters.size(), 1u);
    ASSERT_TRUE(layout->parameters.contains("IbTc"));
    const auto again = parse_layout(render_json(*layout, "test"));
    ASSERT_TRUE(again.ok()) << again.failure().message;
    EXPECT_EQ(again->parameters, layout->parameters);

    void *loaded = dlopen(FAKE_NCCL, RTLD_NOW);
    ASSERT_NE(loaded, nullptr) << dlerror();
    const std::uint64_t bias = static_cast<link_map *>(loaded)->l_addr;
    const process::ProcessView self{getpid()};
    EXPECT_TRUE(read_parameters(self, *layout, bias).empty()) << "it was not asked for";
    const auto use = reinterpret_cast<long (*)()>(dlsym(loaded, "fake_ib_tc"));
    ASSERT_NE(use, nullptr);
    EXPECT_EQ(use(), 106);
    EXPECT_EQ(read_parameters(self, *layout, bias),
              (std::map<std::string, std::int64_t>{{"IbTc", 106}}));
    // Where nothing is, there is no value.
    EXPECT_TRUE(read_parameters(self, *layout, bias + (1ULL << 46U)).empty());
    dlclose(loaded);
}

} // namespace
} // namespace collwire::nccl::test
