// SPDX-License-Identifier: Apache-2.0
// Symbols, code and DWARF of a library, on a double whose layouts the test knows.
#include "tests/unit/nccl_fixture.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

#include "tests/unit/fake_nccl/fake_nccl.h"
#include "userspace/nccl/library/code_facts.h"
#include "userspace/nccl/library/debug_types.h"

namespace collwire::nccl::test {
namespace {

TEST(SymbolNames, BaseOfAMangledName) {
    EXPECT_EQ(base_name("ncclAllReduce"), "ncclAllReduce");
    EXPECT_EQ(base_name("_Z14ncclProxyStartP8ncclComm"), "ncclProxyStart");
    EXPECT_EQ(base_name("_ZL18hostStreamPlanTaskP8ncclCommP14ncclKernelPlan.part.43"),
              "hostStreamPlanTask");
    EXPECT_EQ(base_name("_ZN9something4elseEv"), "");
    EXPECT_EQ(base_name("_ZZ16ncclParamIbTcvE5cache"), "");
    EXPECT_EQ(base_name("_Z99ncclProxyStart"), "");
    EXPECT_EQ(base_name("_Z99999999999999999999999x"), "");
    EXPECT_EQ(base_name("_Z"), "");
    EXPECT_EQ(base_name(""), "");
}

TEST(SymbolNames, ParameterOfItsVariable) {
    EXPECT_EQ(parameter_name("_ZZ13ncclParamIbTcvE5cache"), "IbTc");
    EXPECT_EQ(parameter_name("_ZZ21ncclParamIbQpsPerConnvE5cache"), "IbQpsPerConn");
    for (const char *other :
         {"", "_ZZ", "_ZZ13ncclParamIbTcvE7noCache", "_ZZ14ncclParamIbTcvE5cache",
          "_ZZ13ncclParamIbTciE5cache", "_ZZ13ncclParamIbTc", "_ZZ9ncclCachevE5cache",
          "_ZZ99999999999999999999ncclParamIbTcvE5cache", "_ZZvE5cache", "vE5cache"})
        EXPECT_EQ(parameter_name(other), "") << other;
}

TEST(SymbolNames, FormByTheSuffix) {
    EXPECT_EQ(form_of("ncclBcast"), SymbolForm::Standard);
    EXPECT_EQ(form_of("_Zx.part.4"), SymbolForm::Part);
    EXPECT_EQ(form_of("_Zx.isra.19"), SymbolForm::Clone);
    EXPECT_EQ(form_of("_Zx.part.1.constprop.0"), SymbolForm::Clone);
    EXPECT_EQ(form_of("_Zx.part.1.cold"), SymbolForm::Cold);
    EXPECT_EQ(form_of("_Zx.cold.7"), SymbolForm::Cold);
}

TEST_F(FakeNccl, CodeHasTheFacts) {
    EXPECT_EQ(stored_number(library_->code(), symbol("ncclGetVersion")), 29907u);
    EXPECT_EQ(stored_number(library_->code(), symbol("recvProxyProgress")), std::nullopt);
    EXPECT_TRUE(
        reads_int_at(library_->code(), symbol("ncclCommUserRank"), offsetof(ncclComm, rank)));
    EXPECT_FALSE(
        reads_int_at(library_->code(), symbol("ncclCommUserRank"), offsetof(ncclComm, nRanks)));
    const auto sum = offsetof(ncclProxySubArgs, transSize);
    EXPECT_TRUE(adds_at(library_->code(), symbol("sendProxyProgress"), sum));
    EXPECT_FALSE(adds_at(library_->code(), symbol("recvProxyProgress"), sum));
    EXPECT_FALSE(adds_at(library_->code(), symbol("sendProxyProgress"), sum + 8));
}

TEST_F(FakeNccl, FieldsAreWhereTheCompilerPutThem) {
    const auto debug = DebugInfo::open(library_->elf());
    ASSERT_TRUE(debug.has_value());
    const std::vector<std::string> fields{"ncclComm",
                                          "ncclComm.channels",
                                          "ncclComm.commHash",
                                          "ncclComm.config.commName",
                                          "ncclComm.nRanks",
                                          "ncclComm.noSuchField",
                                          "ncclChannel.ring.next",
                                          "ncclProxyArgs.done",
                                          "ncclProxyArgs.opCount",
                                          "ncclSocket.fd"};
    auto sorted = fields;
    std::ranges::sort(sorted);
    const std::array<std::string_view, 3> units{"init.cc", "enqueue.cc", "transport/net.cc"};
    const std::array<std::string_view, 1> prefixes{"ncclPattern"};
    const auto types = debug->types(sorted, units, prefixes);
    const auto field_layout = [&](std::string_view name) {
        const auto found = types.layouts.find(name);
        return found == types.layouts.end() ? FieldLayout{~0ul, 0, 0} : found->second;
    };
    EXPECT_EQ(field_layout("ncclComm"), (FieldLayout{0, sizeof(ncclComm), 0}));
    EXPECT_EQ(field_layout("ncclComm.channels"),
              (FieldLayout{offsetof(ncclComm, channels), 64 * sizeof(ncclChannel), 64}));
    EXPECT_EQ(field_layout("ncclComm.commHash"), (FieldLayout{offsetof(ncclComm, commHash), 8, 0}));
    EXPECT_EQ(field_layout("ncclComm.nRanks"), (FieldLayout{offsetof(ncclComm, nRanks), 4, 0}));
    EXPECT_EQ(field_layout("ncclProxyArgs.done"), (FieldLayout{8, 8, 0})); // of its base class
    EXPECT_EQ(field_layout("ncclProxyArgs.opCount"), (FieldLayout{sizeof(fakeBase), 8, 0}));
    EXPECT_EQ(field_layout("ncclComm.config.commName"),
              (FieldLayout{offsetof(ncclComm, config) + offsetof(ncclConfig_t, commName), 8, 0}));
    EXPECT_EQ(field_layout("ncclChannel.ring.next"),
              (FieldLayout{offsetof(ncclChannel, ring) + sizeof(int), 4, 0}));
    EXPECT_FALSE(types.layouts.contains("ncclComm.noSuchField"));
    EXPECT_FALSE(types.layouts.contains("ncclComm.cudaDev")); // not asked for
    EXPECT_FALSE(types.layouts.contains("ncclSocket.fd"));
    EXPECT_TRUE(types.ambiguous.contains("ncclSocket"));
    EXPECT_EQ(types.enumerators.at("ncclPatternTreeUp"), 7);
    EXPECT_EQ(types.enumerators.at("ncclPatternSend"), 13);
    EXPECT_FALSE(types.enumerators.contains("ncclFuncAllReduce"));
}

TEST_F(FakeNccl, OnlyTheUnitsThatAreAskedFor) {
    const auto debug = DebugInfo::open(library_->elf());
    ASSERT_TRUE(debug.has_value());
    const std::vector<std::string> fields{"ncclSocket.fd"};
    const std::array<std::string_view, 1> units{"transport/net.cc"};
    const auto types = debug->types(fields, units, {});
    EXPECT_EQ(types.layouts.at("ncclSocket.fd").offset_bytes, sizeof(long));
    EXPECT_TRUE(types.ambiguous.empty());
}

// A copy of a function in another, and calls of one that has none.
TEST_F(FakeNccl, CallersAndInlinedCopiesAreFound) {
    const auto debug = DebugInfo::open(library_->elf());
    ASSERT_TRUE(debug.has_value());
    const auto append = symbol("ncclLocalOpAppend");
    const auto copies = debug->passings_of(symbol("ncclProxyPost").address);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].function, "ncclLocalOpAppend");
    EXPECT_EQ(copies[0].entry, append.address);
    EXPECT_EQ(copies[0].bytes, append.bytes);
    EXPECT_GT(copies[0].address, append.address) << "its test comes first";
    EXPECT_LT(copies[0].address, append.address + append.bytes);

    const auto calls = debug->passings_of(symbol("fakeFinish").address);
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].function, "fake_append");
    EXPECT_TRUE(debug->passings_of(append.address + 1).empty());
}

// The truth is the register itself: the double's ncclProxyStart writes all of them down.
TEST_F(FakeNccl, ACallerKeepsItsParameterInOneRegister) {
    const auto debug = DebugInfo::open(library_->elf());
    ASSERT_TRUE(debug.has_value());
    const auto task = symbol("hostStreamPlanTask");
    const auto number = debug->parameter_at_call(task.address, "ncclProxyStart", "plan");
    ASSERT_TRUE(number.has_value());
    EXPECT_EQ(debug->parameter_at_entry(task.address, "comm"), 5u); // rdi
    EXPECT_EQ(debug->parameter_at_entry(task.address, "plan"), 4u); // rsi
    EXPECT_EQ(debug->parameter_at_entry(task.address + 1, "plan"), std::nullopt);
    EXPECT_EQ(debug->parameter_at_call(task.address, "absent", "plan"), std::nullopt);
    EXPECT_EQ(debug->parameter_at_call(task.address, "ncclProxyStart", "nothing"), std::nullopt);

    void *loaded = dlopen(FAKE_NCCL, RTLD_NOW);
    ASSERT_NE(loaded, nullptr) << dlerror();
    const auto launch =
        reinterpret_cast<int (*)(ncclComm *, ncclKernelPlan *)>(dlsym(loaded, "fake_launch"));
    const auto *preserved = static_cast<const std::uint64_t *>(dlsym(loaded, "fake_preserved"));
    ASSERT_TRUE(launch != nullptr && preserved != nullptr);
    ncclComm comm{};
    ncclKernelPlan plan{};
    EXPECT_EQ(launch(&comm, &plan), 1);
    EXPECT_TRUE(plan.persistent);
    constexpr std::array<unsigned, 6> NUMBERS{3, 6, 12, 13, 14, 15};
    bool held = false;
    for (std::size_t i = 0; i < NUMBERS.size(); ++i)
        held = held ||
               (NUMBERS[i] == *number && preserved[i] == reinterpret_cast<std::uintptr_t>(&plan));
    EXPECT_TRUE(held) << "not in register " << *number;
    dlclose(loaded);
}

TEST_F(FakeNccl, EveryTruncationIsOneError) {
    const auto whole = mapped_->bytes();
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + bytes / 16) {
        const auto cut = LibraryFile::parse(whole.first(bytes));
        if (!cut) {
            EXPECT_FALSE(cut.failure().message.empty());
            continue;
        }
        // All code may still be there, and symbols or DWARF not.
        const auto layout = make_layout(*cut);
        EXPECT_TRUE(layout.ok() || !layout.failure().message.empty());
    }
}

} // namespace
} // namespace collwire::nccl::test
