// SPDX-License-Identifier: Apache-2.0
// Functions of a stripped file, by what they log, and what their code says.
#include <array>
#include <optional>

#include <gtest/gtest.h>

#include "tests/unit/nccl_fixture.h"
#include "userspace/nccl/layout/borrowed_layout.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/library/code_facts.h"
#include "userspace/nccl/library/logged_names.h"

namespace collwire::nccl::test {
namespace {

constexpr std::array<std::string_view, 10> NAMES{
    "bodyOfBoth",   "checksEnds", "firstUser",     "handedOn",   "hasItInlined",
    "inlinedTwice", "absent",     "ownAndInlined", "secondUser", "startsWork"};
constexpr std::uint64_t STATE_BYTES = 40, OPERATIONS_BYTES = 24;
constexpr std::uint64_t OTHER_BYTES = 64, END_BYTES = 72;
constexpr std::uint64_t OTHER_MARK = 0x7310573105731057;

class LoggedNamesTest : public testing::Test {
protected:
    void SetUp() override {
        auto mapped = elf::FileBytes::open(FAKE_LOGGING_STRIPPED);
        ASSERT_TRUE(mapped.ok()) << mapped.failure().message;
        mapped_.emplace(std::move(*mapped));
        auto library = LibraryFile::parse(mapped_->bytes());
        ASSERT_TRUE(library.ok()) << library.failure().message;
        library_.emplace(std::move(*library));
        ASSERT_FALSE(library_->has_symbol_table());
        names_.emplace(*library_, NAMES);
    }
    [[nodiscard]] elf::CodeRange range_of(std::string_view name) const {
        const LoggingFunction *function = names_->find(name);
        return function == nullptr ? elf::CodeRange{}
                                   : elf::CodeRange{function->begin, function->bytes};
    }

    std::optional<elf::FileBytes> mapped_;
    std::optional<LibraryFile> library_;
    std::optional<LoggedNames> names_;
};

TEST_F(LoggedNamesTest, FindsThemByTheirNames) {
    std::set<std::uint64_t> begins;
    for (const std::string_view name : {"firstUser", "secondUser", "startsWork", "handedOn",
                                        "hasItInlined", "ownAndInlined", "checksEnds"}) {
        const LoggingFunction *function = names_->find(name);
        ASSERT_NE(function, nullptr) << name;
        EXPECT_EQ(function->is_called, name != std::string_view{"handedOn"}) << name;
        EXPECT_EQ(names_->function_at(function->begin).begin, function->begin);
        EXPECT_TRUE(library_->code().is_code(function->begin));
        begins.insert(function->begin);
    }
    EXPECT_EQ(begins.size(), 7U) << "each is another";
    EXPECT_EQ(names_->find("absent"), nullptr);
    EXPECT_EQ(names_->find("inlinedTwice"), nullptr) << "it is in two that have names of their own";
    EXPECT_EQ(names_->function_at(0).bytes, 0U);
}

TEST_F(LoggedNamesTest, CodeHasTheFacts) {
    const elf::CodeRange starter = range_of("startsWork");
    const auto calls = direct_calls(library_->code(), starter);
    std::optional<DirectCall> start;
    for (const DirectCall &call : calls) {
        const elf::CodeRange callee = names_->function_at(call.callee);
        if (begins_with_reading(library_->code(), callee, STATE_BYTES, OPERATIONS_BYTES))
            start = call;
        EXPECT_FALSE(
            begins_with_reading(library_->code(), callee, STATE_BYTES, OPERATIONS_BYTES + 8));
        EXPECT_FALSE(
            begins_with_reading(library_->code(), callee, STATE_BYTES + 8, OPERATIONS_BYTES));
    }
    ASSERT_TRUE(start);
    EXPECT_NE(elf::register_bit(second_argument_at(library_->code(), starter, start->address)), 0U);
    // Elsewhere what is handed on is not the first argument, or there is no second one.
    for (const DirectCall &call : calls) {
        if (call.callee != start->callee) {
            EXPECT_EQ(second_argument_at(library_->code(), starter, call.address), "");
        }
    }
    const elf::CodeRange user = range_of("firstUser");
    for (const DirectCall &call : direct_calls(library_->code(), user))
        EXPECT_EQ(second_argument_at(library_->code(), user, call.address), "");
}

TEST_F(LoggedNamesTest, ComparisonsAreFound) {
    const elf::CodeRange checks = range_of("checksEnds");
    const elf::CodeView &code = library_->code();
    EXPECT_TRUE(compares_at(code, checks, COMM_MAGIC, END_BYTES));
    EXPECT_TRUE(compares_at(code, checks, COMM_MAGIC, 0));
    EXPECT_TRUE(compares_at(code, checks, OTHER_MARK, OTHER_BYTES));
    EXPECT_FALSE(compares_at(code, checks, COMM_MAGIC, OTHER_BYTES)) << "with another one";
    EXPECT_FALSE(compares_at(code, checks, COMM_MAGIC, END_BYTES + 8));
    EXPECT_FALSE(compares_at(code, range_of("firstUser"), COMM_MAGIC, END_BYTES));
}

TEST_F(LoggedNamesTest, AnAddressThatIsReturned) {
    const std::array<std::string_view, 2> names{"fake_all", "fake_text"};
    const auto symbols = library_->find(names);
    ASSERT_EQ(symbols.count("fake_text"), 1U);
    const auto address = returned_address(library_->code(), symbols.find("fake_text")->second);
    ASSERT_TRUE(address);
    EXPECT_FALSE(library_->code().is_code(*address));
}

TEST_F(FakeNccl, NothingIsBorrowedOfAnotherVersionOrLayout) {
    const auto other = make_layout(*library_);
    ASSERT_TRUE(other.ok());
    auto layout = borrow_layout(*library_, *other);
    ASSERT_FALSE(layout.ok()) << "of that itself nothing is recorded";
    LibraryLayout older = *other;
    older.build_id = "0b";
    older.version = "2.99.6";
    layout = borrow_layout(*library_, older);
    ASSERT_FALSE(layout.ok());
    EXPECT_NE(layout.failure().message.find("another version"), std::string::npos);
    layout = borrow_layout(*library_, older, Lender::PatchRelease);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.failure().message.find("another version"), std::string::npos);
    older.version = other->version;
    layout = borrow_layout(*library_, older, Lender::PatchRelease);
    ASSERT_FALSE(layout.ok());
    EXPECT_NE(layout.failure().message.find("another version"), std::string::npos) << "it is not";
    LibraryLayout recorded = *other;
    layout = borrow_layout(*library_, recorded);
    ASSERT_FALSE(layout.ok());
    recorded.build_id = "0b";
    recorded.not_recorded.clear();
    layout = borrow_layout(*library_, recorded);
    ASSERT_FALSE(layout.ok());
    EXPECT_NE(layout.failure().message.find("ncclCommCount reads"), std::string::npos)
        << layout.failure().message;
}

} // namespace
} // namespace collwire::nccl::test
