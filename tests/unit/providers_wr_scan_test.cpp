// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/wr_scan.h"

#include <gtest/gtest.h>

#include "tests/unit/elf_builder.h"

namespace collwire::verbs {
namespace {

using test::ElfBuilder;

constexpr std::uint64_t ENTRY = ElfBuilder::CODE + 0x100;
constexpr std::uint64_t START = 320, COMPLETE = 328, ABORT = 336, SEND = 240, WRITE = 224,
                        READ = 216, SET_SGE = 304;
// Functions of a driver.
constexpr std::uint64_t F = ElfBuilder::CODE + 0x1000;
constexpr std::uint64_t F_START = F, F_COMPLETE = F + 0x10, F_ABORT = F + 0x20, F_SEND = F + 0x30,
                        F_WRITE = F + 0x40, F_SGE = F + 0x50, F_OTHER = F + 0x60;

// Instructions one after the other.
class Code {
public:
    Code(ElfBuilder &elf, std::uint64_t address) : elf_(elf), at_(address) {}

    Code &bytes(std::initializer_list<int> instruction) {
        elf_.code(at_, instruction);
        at_ += instruction.size();
        return *this;
    }
    Code &lea_rax(std::uint64_t target) { return relative({0x48, 0x8d, 0x05}, target); }
    Code &lea_rdx(std::uint64_t target) { return relative({0x48, 0x8d, 0x15}, target); }
    Code &store_rax(std::uint64_t offset) { return with({0x48, 0x89, 0x83}, offset); } // (%rbx)
    Code &store_rax_r12(std::uint64_t offset) { return with({0x49, 0x89, 0x84, 0x24}, offset); }
    Code &store_rax_rsp(std::uint64_t offset) { return with({0x48, 0x89, 0x84, 0x24}, offset); }
    // Both at once, by %xmm0
    Code &pair(std::uint64_t low, std::uint64_t high, std::uint64_t offset) {
        lea_rdx(low).lea_rax(high);
        bytes({0x66, 0x48, 0x0f, 0x6e, 0xc2}); // movq %rdx,%xmm0
        bytes({0x66, 0x48, 0x0f, 0x6e, 0xd8}); // movq %rax,%xmm3
        bytes({0x66, 0x0f, 0x6c, 0xc3});       // punpcklqdq %xmm3,%xmm0
        return with({0x0f, 0x11, 0x83}, offset);
    }
    // From a pair of pointers in the library's data
    Code &pair_of_data(std::uint64_t data, std::uint64_t offset) {
        relative({0x66, 0x0f, 0x6f, 0x05}, data); // movdqa data(%rip),%xmm0
        return with({0x0f, 0x11, 0x83}, offset);
    }
    Code &call() { return bytes({0xe8, 0, 0, 0, 0}); }
    Code &ends() { return bytes({0xc3}); }
    [[nodiscard]] std::uint64_t at() const { return at_; }

private:
    Code &with(std::initializer_list<int> opcode, std::uint64_t value) {
        bytes(opcode);
        for (unsigned i = 0; i < 4; ++i)
            bytes({static_cast<int>(value >> (8 * i) & 0xff)});
        return *this;
    }
    Code &relative(std::initializer_list<int> opcode, std::uint64_t target) {
        return with(opcode, target - (at_ + opcode.size() + 4));
    }
    ElfBuilder &elf_;
    std::uint64_t at_;
};

std::vector<WrFunction> scan(ElfBuilder &elf) {
    const auto image = elf::ElfImage::parse(elf.build());
    EXPECT_TRUE(image.ok());
    return find_wr_functions(*image);
}

Code &store_the_three(Code &code) {
    return code.lea_rax(F_START)
        .store_rax(START)
        .lea_rax(F_COMPLETE)
        .store_rax(COMPLETE)
        .lea_rax(F_ABORT)
        .store_rax(ABORT);
}

TEST(WrScan, StoredOneByOne) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    code.lea_rax(F_SEND).store_rax(SEND).lea_rax(F_WRITE).store_rax(WRITE);
    store_the_three(code).ends();
    EXPECT_EQ(scan(elf), (std::vector<WrFunction>{{CW_CALL_WR_WRITE, F_WRITE},
                                                  {CW_CALL_WR_SEND, F_SEND},
                                                  {CW_CALL_WR_COMPLETE, F_COMPLETE},
                                                  {CW_CALL_WR_ABORT, F_ABORT}}));
}

TEST(WrScan, StoredAsPairs) {
    ElfBuilder elf;
    elf.function(ENTRY);
    elf.pointer(ElfBuilder::DATA + 0x100, F_SGE);
    elf.pointer(ElfBuilder::DATA + 0x108, F_OTHER); // set_sge_list
    Code code{elf, ENTRY};
    code.pair_of_data(ElfBuilder::DATA + 0x100, SET_SGE)
        .pair(F_START, F_COMPLETE, START)
        .lea_rax(F_ABORT)
        .store_rax(ABORT)
        .ends();
    EXPECT_EQ(scan(elf), (std::vector<WrFunction>{{CW_CALL_SET_SGE, F_SGE},
                                                  {CW_CALL_SET_SGE_LIST, F_OTHER},
                                                  {CW_CALL_WR_COMPLETE, F_COMPLETE},
                                                  {CW_CALL_WR_ABORT, F_ABORT}}));
}

TEST(WrScan, OnlyWhereTheThreeAreStoredToo) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    // wr_abort through another register: another struct, for all we know
    code.lea_rax(F_SEND).store_rax(SEND).lea_rax(F_START).store_rax(START);
    code.lea_rax(F_COMPLETE).store_rax(COMPLETE).lea_rax(F_ABORT).store_rax_r12(ABORT).ends();
    EXPECT_TRUE(scan(elf).empty());
}

TEST(WrScan, NotThroughOtherRegisters) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    code.lea_rax(F_SEND).store_rax_r12(SEND);
    store_the_three(code).ends();
    EXPECT_EQ(scan(elf).size(), 2u);
}

TEST(WrScan, NotOnTheStack) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    code.lea_rax(F_START).store_rax_rsp(START).lea_rax(F_COMPLETE).store_rax_rsp(COMPLETE);
    code.lea_rax(F_ABORT).store_rax_rsp(ABORT).lea_rax(F_SEND).store_rax_rsp(SEND).ends();
    EXPECT_TRUE(scan(elf).empty());
}

TEST(WrScan, NotOfTheNextFunction) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    store_the_three(code).ends();
    elf.function(code.at());
    // Completion queues have functions at the same offsets.
    code.lea_rax(F_OTHER).store_rax(WRITE).ends();
    EXPECT_EQ(scan(elf).size(), 2u);
}

TEST(WrScan, NotWithoutTheTableOfFunctions) {
    ElfBuilder elf;
    Code code{elf, ENTRY};
    store_the_three(code).ends();
    EXPECT_TRUE(scan(elf).empty());
}

TEST(WrScan, WhatIsOverwrittenIsForgotten) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    code.lea_rax(F_SEND).bytes({0x31, 0xc0}).store_rax(SEND);  // xor %eax,%eax
    code.lea_rax(F_WRITE).call().store_rax(WRITE);             // what a call returns
    code.lea_rax(F_OTHER).bytes({0xb0, 0x01}).store_rax(READ); // mov $1,%al
    store_the_three(code).ends();
    EXPECT_EQ(scan(elf).size(), 2u);
}

TEST(WrScan, OneFunctionForTwoCallsIsLeftOut) {
    ElfBuilder elf;
    elf.function(ENTRY);
    Code code{elf, ENTRY};
    code.lea_rax(F_SEND).store_rax(SEND).store_rax(WRITE);
    store_the_three(code).ends();
    EXPECT_EQ(scan(elf).size(), 2u);
}

} // namespace
} // namespace collwire::verbs
