// SPDX-License-Identifier: Apache-2.0
// API-only layouts.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "collwire/nccl_layout.h"
#include "userspace/elf/file_bytes.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/library/code_facts.h"

namespace collwire::nccl {
namespace {

// As in fake_nccl/exported.cc.
constexpr std::uint64_t HASH_AT = 328, RANK_AT = 336, RANKS_AT = 340, DEVICE_AT = 344;

class ExportedLayout : public testing::Test {
protected:
    void SetUp() override {
        auto made = layout_of_file(FAKE_EXPORTED);
        ASSERT_TRUE(made.ok()) << made.failure().message;
        layout_ = std::move(*made);
    }
    [[nodiscard]] std::uint64_t offset(const std::string &name) const {
        const auto found = layout_.offsets.find(name);
        return found == layout_.offsets.end() ? UINT64_MAX : found->second.value;
    }

    LibraryLayout layout_;
};

TEST_F(ExportedLayout, HasTheReason) {
    EXPECT_EQ(layout_.not_recorded, "");
    EXPECT_NE(layout_.calls_only.find("it was stripped"), std::string::npos) << layout_.calls_only;
    EXPECT_NE(layout_.calls_only.find("Fix: --symbols"), std::string::npos) << layout_.calls_only;
    EXPECT_EQ(layout_.version, "2.99.7");
    for (const Capability &capability : layout_.capabilities) {
        const bool is_inferred =
            capability.name == "communicators" || capability.name == "operations";
        EXPECT_EQ(capability.rung, is_inferred ? Certainty::Inferred : Certainty::Process)
            << capability.name;
        EXPECT_EQ(capability.source.empty(), !is_inferred) << capability.source;
        EXPECT_FALSE(capability.missing.empty()) << capability.name;
    }
    const std::string text = render_text(layout_);
    EXPECT_NE(text.find("API-only: it was stripped"), std::string::npos) << text;
}

TEST_F(ExportedLayout, FieldsAreThoseOfTheGetters) {
    EXPECT_EQ(offset("ncclComm.rank"), RANK_AT);
    EXPECT_EQ(offset("ncclComm.nRanks"), RANKS_AT);
    EXPECT_EQ(offset("ncclComm.cudaDev"), DEVICE_AT);
    EXPECT_EQ(offset("ncclComm.commHash"), HASH_AT);
    EXPECT_EQ(offset("ncclComm.startMagic"), 0U);
    EXPECT_EQ(layout_.offsets.size(), 5U);
    EXPECT_TRUE(layout_.data.contains("ncclLastError"));
    const auto bpf_layout = bpf_layout_of(layout_, 3);
    ASSERT_TRUE(bpf_layout.ok()) << bpf_layout.failure().message;
    EXPECT_EQ(bpf_layout->comm_rank, RANK_AT);
    EXPECT_EQ(bpf_layout->comm_proxy_state, CW_NCCL_NO_FIELD);
    EXPECT_EQ(bpf_layout->last_error, layout_.data.at("ncclLastError"));
}

TEST_F(ExportedLayout, ProbesAreWhereArgumentsAreFound) {
    ASSERT_EQ(layout_.probes.size(), 3U);
    for (const ProbedFunction &probe : layout_.probes) {
        EXPECT_TRUE(is_exported_call(probe.function)) << probe.function;
        EXPECT_EQ(placed_when(layout_, probe), Placed::Always) << probe.function;
        EXPECT_EQ(probe.symbol, probe.function);
    }
    const ProbedFunction *reduce = find_probe(layout_, "ncclReduce");
    ASSERT_NE(reduce, nullptr);
    EXPECT_EQ(reduce->address, reduce->entry) << "after it the stack pointer is another";
    EXPECT_FALSE(reduce->emulated);
}

TEST_F(ExportedLayout, IsReadBackAsItWasWritten) {
    const std::string json = render_json(layout_, "1");
    const auto read = parse_layout(json);
    ASSERT_TRUE(read.ok()) << read.failure().message;
    EXPECT_EQ(read->calls_only, layout_.calls_only);
    EXPECT_EQ(render_json(*read, "1"), json);
}

TEST(ExportedFunctions, AGetterWithTwoOffsetsIsUnknown) {
    const auto mapped = elf::FileBytes::open(FAKE_EXPORTED);
    ASSERT_TRUE(mapped.ok());
    const auto library = LibraryFile::parse(mapped->bytes());
    ASSERT_TRUE(library.ok());
    const std::array<std::string_view, 2> names{"fakeTwoGetter", "ncclCommCount"};
    for (const auto &[name, symbol] : library->find(names))
        EXPECT_EQ(int_handed_on(library->code(), symbol),
                  name == "ncclCommCount" ? std::optional{RANKS_AT} : std::nullopt)
            << name;
}

// Of one that is recorded nothing is taken away.
TEST(ExportedFunctions, ReplaceOnlyLayoutsThatAreNotRecorded) {
    const auto mapped = elf::FileBytes::open(FAKE_EXPORTED);
    ASSERT_TRUE(mapped.ok());
    const auto library = LibraryFile::parse(mapped->bytes());
    ASSERT_TRUE(library.ok());
    LibraryLayout layout;
    layout.probes.emplace_back().function = "ncclProxyStart";
    add_exported_functions(*library, layout);
    EXPECT_EQ(layout.probes.size(), 1U);
    EXPECT_EQ(layout.calls_only, "");
}

} // namespace
} // namespace collwire::nccl
