// SPDX-License-Identifier: Apache-2.0
// Layouts of files with the code of another build, and with nearly that code. The double is linked
// several times; its own symbols and DWARF say where everything is in each.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/file_bytes.h"
#include "userspace/elf/frame_functions.h"
#include "userspace/elf/function_hashes.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/same_code.h"

namespace collwire::nccl::test {
namespace {

using collwire::test::bytes_of;

// A file of the double, and its layout by its own symbols and DWARF.
struct DoubleFile {
    explicit DoubleFile(std::string_view variant)
        : bytes(bytes_of(std::string{SAME_CODE_DOUBLE} + std::string{variant})) {
        auto parsed = LibraryFile::parse(bytes);
        if (!parsed)
            return;
        library.emplace(std::move(*parsed));
        if (auto made = make_layout(*library))
            layout = std::move(*made);
    }
    [[nodiscard]] std::vector<elf::CodeRange> functions() const {
        return elf::frame_functions(library->code(), library->exception_table());
    }

    std::vector<std::byte> bytes;
    std::optional<LibraryFile> library;
    LibraryLayout layout;
};

class SameCode : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(known_.library);
        ASSERT_EQ(known_.layout.not_recorded, "");
        ASSERT_EQ(known_.layout.probes.size(), 4U);
        ASSERT_TRUE(known_.layout.data.contains("ncclLastError"));
        ASSERT_TRUE(known_.layout.parameters.contains("IbTc"));
        add_code_identity(*known_.library, known_.layout);
        ASSERT_TRUE(known_.layout.code.is_known());
    }
    // Why the variant is not of that code, and which functions are.
    [[nodiscard]] std::string refusal(std::string_view variant, std::string &differences) const {
        const DoubleFile other{variant};
        CodeComparison comparison{*other.library};
        differences = text_of(comparison.compare_known(known_.layout));
        const auto layout = comparison.layout_from(known_.layout);
        return layout ? "" : layout.failure().message;
    }
    void expect_own(const DoubleFile &truth, std::string_view by) const {
        const DoubleFile stripped{&truth == &moved_ ? ".moved.stripped" : ".other-id.stripped"};
        ASSERT_TRUE(stripped.library);
        ASSERT_FALSE(stripped.library->has_symbol_table());
        CodeComparison comparison{*stripped.library};
        const auto layout = comparison.layout_from(known_.layout);
        ASSERT_TRUE(layout.ok()) << layout.failure().message;
        EXPECT_EQ(text_of(comparison.compare_known(known_.layout)),
                  "7 of 7 known functions have the same code, others have not");
        EXPECT_TRUE(layout->fits_by.starts_with("the same code as 2.99.7 (")) << layout->fits_by;
        EXPECT_TRUE(layout->fits_by.ends_with(by)) << layout->fits_by;
        EXPECT_NE(layout->build_id, known_.layout.build_id);
        EXPECT_EQ(layout->build_id, truth.layout.build_id);
        EXPECT_EQ(layout->data, truth.layout.data);
        EXPECT_EQ(layout->parameters, truth.layout.parameters);
        EXPECT_FALSE(truth.layout.host_functions.empty());
        EXPECT_EQ(layout->host_functions, truth.layout.host_functions);
        ASSERT_EQ(layout->probes.size(), truth.layout.probes.size());
        for (std::size_t i = 0; i < layout->probes.size(); ++i) {
            EXPECT_EQ(layout->probes[i].function, truth.layout.probes[i].function);
            EXPECT_EQ(layout->probes[i].entry, truth.layout.probes[i].entry);
            EXPECT_EQ(layout->probes[i].address, truth.layout.probes[i].address);
            EXPECT_EQ(layout->probes[i].file_offset, truth.layout.probes[i].file_offset);
            EXPECT_EQ(layout->probes[i].instruction, truth.layout.probes[i].instruction);
        }
        for (const Capability &capability : layout->capabilities) {
            const Capability *own = find_capability(truth.layout, capability.name);
            ASSERT_NE(own, nullptr);
            EXPECT_EQ(capability.rung, own->rung) << capability.name;
            EXPECT_EQ(capability.missing, own->missing) << capability.name;
        }
        EXPECT_FALSE(layout->code.is_known()) << "it is of the other file";
    }

    DoubleFile known_{""};
    DoubleFile moved_{".moved"};
    DoubleFile other_id_{".other-id"};
};

TEST_F(SameCode, FunctionsOfTheExceptionTableAreThoseOfTheSymbols) {
    const std::vector<elf::CodeRange> functions = known_.functions();
    for (const ProbedFunction &probe : known_.layout.probes) {
        const std::string_view names[] = {probe.function};
        const auto symbols = known_.library->find(names);
        ASSERT_EQ(symbols.size(), 1U) << probe.function;
        const auto found =
            std::ranges::find(functions, symbols.begin()->second.address, &elf::CodeRange::begin);
        ASSERT_NE(found, functions.end()) << probe.function;
        EXPECT_EQ(found->bytes, symbols.begin()->second.bytes) << probe.function;
    }
}

TEST_F(SameCode, AFileWithAnotherBuildIdHasItsLayout) {
    expect_own(other_id_, "): all bytes of code and constants");
    EXPECT_EQ(known_.layout.data, other_id_.layout.data);
}

TEST_F(SameCode, AFileWithOtherAddressesHasItsLayoutThere) {
    expect_own(moved_, " functions, one by one");
    EXPECT_NE(known_.layout.data, moved_.layout.data);
    EXPECT_NE(known_.layout.parameters, moved_.layout.parameters);
    EXPECT_NE(known_.layout.probes.front().entry, moved_.layout.probes.front().entry);
}

TEST_F(SameCode, AnotherFieldIsAnotherCode) {
    std::string differences;
    EXPECT_NE(refusal(".field", differences), "");
    EXPECT_EQ(differences,
              "6 of 7 known functions have the same code, ncclCommInitRankFunc has not");
}

// The instructions are the same, and the jump table is not. It is in a function without a probe.
TEST_F(SameCode, OtherCasesAreAnotherCode) {
    std::string differences;
    EXPECT_NE(refusal(".cases", differences), "");
    EXPECT_EQ(differences, "7 of 7 known functions have the same code, others have not");
    const DoubleFile cases{".cases"};
    const auto own = elf::hash_functions(known_.library->code(), known_.functions()).each;
    const auto others = elf::hash_functions(cases.library->code(), cases.functions()).each;
    ASSERT_EQ(own.size(), others.size());
    std::size_t n_different = 0;
    for (std::size_t i = 0; i < own.size(); ++i)
        n_different += own[i] != others[i] ? 1 : 0;
    EXPECT_EQ(n_different, 1U);
}

// The instructions are the same, and two variables have changed places in one function.
TEST_F(SameCode, AnotherVariableIsAnotherCode) {
    std::string differences;
    EXPECT_NE(refusal(".variable", differences), "");
    EXPECT_EQ(differences, "7 of 7 known functions have the same code, others have not");
}

TEST_F(SameCode, FunctionsThatDifferAreNamed) {
    CodeComparison comparison{*other_id_.library};
    LibraryLayout other = known_.layout;
    for (auto &[entry, function] : other.code.entries)
        function.hash += 1;
    EXPECT_EQ(text_of(comparison.compare_known(other)),
              "0 of 7 known functions have the same code, commCleanup, ncclAllReduce, "
              "ncclCommDestroy, ncclCommInitRank and 3 more have not");
    other.code.entries.clear();
    EXPECT_EQ(text_of(comparison.compare_known(other)), "");
}

TEST_F(SameCode, ALayoutWithoutCodeOrOfTheSameBuildIsNotUsed) {
    CodeComparison comparison{*other_id_.library};
    EXPECT_TRUE(comparison.layout_from(known_.layout).ok());
    LibraryLayout without = known_.layout;
    without.code = {};
    EXPECT_FALSE(comparison.layout_from(without).ok());
    EXPECT_EQ(comparison.compare_known(without).n_compared, 0U);
    EXPECT_FALSE(CodeComparison{*known_.library}.layout_from(known_.layout).ok());
}

TEST_F(SameCode, WhatIsNotFoundInTheFileIsRefused) {
    CodeComparison comparison{*other_id_.library};
    const auto refused = [&](const auto &change) {
        LibraryLayout other = known_.layout;
        change(other);
        return !comparison.layout_from(other).ok();
    };
    EXPECT_FALSE(refused([](LibraryLayout &) {}));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.code.entries.clear(); }));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.code.references.clear(); }));
    EXPECT_TRUE(refused([](LibraryLayout &other) {
        for (auto &[address, place] : other.code.references)
            place.offset_bytes = ~0U;
    }));
    EXPECT_TRUE(refused([](LibraryLayout &other) {
        for (auto &[entry, function] : other.code.entries)
            function.number = ~0U;
    }));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.probes.front().address += 100'000; }));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.host_functions["a"] = {{1, 1}}; }));
    EXPECT_TRUE(refused([](LibraryLayout &other) {
        other.host_functions.begin()->second.front().bytes += 100'000;
    }));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.version = "2.99.8"; }));
    EXPECT_TRUE(refused([](LibraryLayout &other) { other.calls_only = "a reason"; }));
}

TEST_F(SameCode, TheIdentityOfCodeSurvivesAFile) {
    const auto read = parse_layout(render_json(known_.layout, "1"));
    ASSERT_TRUE(read.ok()) << read.failure().message;
    EXPECT_EQ(read->code.n_functions, known_.layout.code.n_functions);
    EXPECT_EQ(read->code.functions_sha256, known_.layout.code.functions_sha256);
    EXPECT_EQ(read->code.bytes_sha256, known_.layout.code.bytes_sha256);
    EXPECT_EQ(read->code.entries, known_.layout.code.entries);
    EXPECT_TRUE(CodeComparison{*other_id_.library}.layout_from(*read).ok());
    EXPECT_TRUE(CodeComparison{*moved_.library}.layout_from(*read).ok());
    for (const std::string_view field : {"\"functions\"", "\"entries\"", "\"references\""}) {
        std::string text = render_json(known_.layout, "1");
        text[text.find(field) + 1] = '_';
        EXPECT_FALSE(parse_layout(text).ok()) << field;
    }
}

TEST_F(SameCode, ADamagedExceptionTableHasNoFunctions) {
    const auto &code = known_.library->code();
    const std::uint64_t table = known_.library->exception_table();
    const auto at = static_cast<std::size_t>(*code.file_offset(table));
    ASSERT_FALSE(elf::frame_functions(code, table).empty());
    EXPECT_TRUE(elf::frame_functions(code, 0).empty());
    EXPECT_TRUE(elf::frame_functions(code, ~0ULL).empty());
    // The version, an encoding, the count, a start, a frame.
    for (const std::size_t field : {0U, 3U, 11U, 12U, 16U}) {
        std::vector<std::byte> damaged = known_.bytes;
        damaged[at + field] ^= std::byte{0x40};
        const auto file = LibraryFile::parse(damaged);
        ASSERT_TRUE(file.ok());
        EXPECT_TRUE(elf::frame_functions(file->code(), table).empty()) << field;
    }
    // The number of bytes of the first function: then it overlaps the next one.
    std::int32_t distance = 0;
    std::memcpy(&distance, known_.bytes.data() + at + 16, sizeof distance);
    std::vector<std::byte> damaged = known_.bytes;
    const auto frame = static_cast<std::size_t>(
        *code.file_offset(table + static_cast<std::uint64_t>(std::int64_t{distance})));
    const std::vector<elf::CodeRange> functions = known_.functions();
    const auto too_many = static_cast<std::uint32_t>(functions[1].begin - functions[0].begin + 1);
    std::memcpy(damaged.data() + frame + 12, &too_many, sizeof too_many);
    const auto file = LibraryFile::parse(damaged);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(elf::frame_functions(file->code(), table).empty());
}

TEST_F(SameCode, EachReferenceIsThatOfItsInstruction) {
    std::size_t n = 0;
    const std::vector<elf::CodeRange> functions = known_.functions();
    (void)elf::hash_functions(
        known_.library->code(), functions,
        [&](std::size_t function, std::uint64_t offset_bytes, std::uint64_t address) {
            ++n;
            EXPECT_EQ(elf::referenced_address(known_.library->code(),
                                              functions[function].begin + offset_bytes),
                      address);
        });
    EXPECT_GT(n, 8U);
    EXPECT_EQ(elf::referenced_address(known_.library->code(), 0), std::nullopt);
}

} // namespace
} // namespace collwire::nccl::test
