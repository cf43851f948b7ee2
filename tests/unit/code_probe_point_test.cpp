// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/unit/elf_builder.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/probe_point.h"

namespace collwire::elf {
namespace {

using test::ElfBuilder;
constexpr std::uint64_t ENTRY = ElfBuilder::CODE + 0x800;
constexpr unsigned POST_SEND = ARGUMENT_1 | ARGUMENT_2;

struct Chosen {
    std::uint64_t from_entry;
    bool emulated;
    std::string instruction;
};

Chosen choose(std::initializer_list<int> code, unsigned arguments = POST_SEND) {
    ElfBuilder elf;
    elf.code(ENTRY, code);
    const auto image = ElfImage::parse(elf.build());
    EXPECT_TRUE(image.ok());
    const auto point = choose_probe_point(image.value().code(), ENTRY, arguments);
    EXPECT_TRUE(point.ok());
    EXPECT_EQ(point.value().file_offset, point.value().address);
    return {point.value().address - ENTRY, point.value().emulated, point.value().instruction};
}

// What the builds of Debian 11, 12, 13 and Ubuntu 24.04 begin with.
TEST(ProbePoint, FirstInstructionsOfShippedDrivers) {
    const Chosen jump = choose({0xe9, 0x10, 0, 0, 0});
    EXPECT_TRUE(jump.emulated);
    EXPECT_EQ(jump.from_entry, 0u);
    const Chosen push = choose({0x41, 0x57, 0x41, 0x56});
    EXPECT_TRUE(push.emulated);
    EXPECT_EQ(push.from_entry, 0u);
    EXPECT_EQ(push.instruction, "pushq %r15");
    const Chosen marked_jump = choose({0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0x10, 0, 0, 0});
    EXPECT_TRUE(marked_jump.emulated);
    EXPECT_EQ(marked_jump.from_entry, 4u);
    const Chosen marked_push = choose({0xf3, 0x0f, 0x1e, 0xfa, 0x55});
    EXPECT_TRUE(marked_push.emulated);
    EXPECT_EQ(marked_push.from_entry, 4u);
}

// librxe of rdma-core 65: the first emulated instruction is a conditional jump.
TEST(ProbePoint, PastASubtractedStack) {
    const Chosen chosen = choose({0xf3, 0x0f, 0x1e, 0xfa,             // endbr64
                                  0x48, 0x81, 0xec, 0x98, 0,    0, 0, // sub $0x98,%rsp
                                  0x48, 0x89, 0x54, 0x24, 0x10,       // mov %rdx,0x10(%rsp)
                                  0x31, 0xc0,                         // xor %eax,%eax
                                  0x48, 0x85, 0xd2,                   // test %rdx,%rdx
                                  0x0f, 0x84, 0x00, 0x01, 0,    0,    // je
                                  0x41, 0x57});
    EXPECT_TRUE(chosen.emulated);
    EXPECT_EQ(chosen.from_entry, 21u);
    EXPECT_EQ(chosen.instruction.substr(0, 2), "je");
}

TEST(ProbePoint, NotAfterALostArgument) {
    // endbr64; lea 8(%rdi),%rdi; push %rbx
    const Chosen first = choose({0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x7f, 0x08, 0x53});
    EXPECT_FALSE(first.emulated);
    EXPECT_EQ(first.from_entry, 0u);
    EXPECT_EQ(first.instruction, "endbr64");
    // endbr64; xor %esi,%esi; push %rbx
    EXPECT_FALSE(choose({0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xf6, 0x53}).emulated);
    // endbr64; mov %dil,... a part of a register is lost, too: mov $1,%dil; push %rbx
    EXPECT_FALSE(choose({0xf3, 0x0f, 0x1e, 0xfa, 0x40, 0xb7, 0x01, 0x53}).emulated);
    // endbr64; rep stosq writes rdi and rcx
    EXPECT_FALSE(choose({0xf3, 0x0f, 0x1e, 0xfa, 0xf3, 0x48, 0xab, 0x53}).emulated);
    // the third argument only matters where it is asked for: xor %edx,%edx; push %rbx
    EXPECT_TRUE(choose({0x31, 0xd2, 0x53}).emulated);
    EXPECT_FALSE(choose({0x31, 0xd2, 0x53}, ARGUMENT_1 | ARGUMENT_3).emulated);
    // mov %rdi,%rbp only reads
    EXPECT_TRUE(choose({0x48, 0x89, 0xfd, 0x53}).emulated);
}

TEST(ProbePoint, NotAfterABranch) {
    // endbr64; jmp *%rax; push: the push may never run
    const Chosen chosen = choose({0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0xe0, 0x53});
    EXPECT_FALSE(chosen.emulated);
    // endbr64; ret; push
    EXPECT_FALSE(choose({0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x53}).emulated);
}

TEST(ProbePoint, NotInALoop) {
    // xor %eax,%eax; test %rsi,%rsi; je +2; ...; jmp back to the test: the je runs once a round
    const Chosen chosen = choose({0x31, 0xc0,             // xor
                                  0x48, 0x85, 0xf6,       // test
                                  0x74, 0x05,             // je, out of the loop
                                  0x48, 0x8b, 0x76, 0x08, // mov 8(%rsi),%rsi
                                  0xeb, 0xf4,             // jmp test
                                  0xc3});
    EXPECT_FALSE(chosen.emulated);
    // the same around the entry itself
    const Chosen around =
        choose({0x48, 0x85, 0xf6, 0x74, 0x06, 0x48, 0x8b, 0x76, 0x08, 0xeb, 0xf5, 0xc3});
    EXPECT_FALSE(around.emulated);
}

TEST(ProbePoint, FarJumpIntoThePrologue) {
    ElfBuilder elf;
    elf.code(ENTRY, {0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0x53}); // endbr64; xor; push
    // elsewhere: jmp to the push
    const std::uint64_t jump = ElfBuilder::CODE + 0x100;
    const std::uint64_t distance = ENTRY + 6 - (jump + 5);
    elf.code(jump, {0xe9, static_cast<int>(distance & 0xff), static_cast<int>(distance >> 8 & 0xff),
                    0, 0});
    const auto image = ElfImage::parse(elf.build());
    ASSERT_TRUE(image.ok());
    const auto point = choose_probe_point(image.value().code(), ENTRY, POST_SEND);
    ASSERT_TRUE(point.ok());
    EXPECT_FALSE(point.value().emulated);
}

TEST(ProbePoint, JumpsOnlyFromWhereTheFunctionIs) {
    ElfBuilder elf;
    elf.code(ENTRY, {0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0x53}); // endbr64; xor; push
    const std::uint64_t jump = ElfBuilder::CODE + 0x100;         // jmp to the push
    const std::uint64_t distance = ENTRY + 6 - (jump + 5);
    elf.code(jump, {0xe9, static_cast<int>(distance & 0xff), static_cast<int>(distance >> 8 & 0xff),
                    0, 0});
    const auto image = ElfImage::parse(elf.build());
    ASSERT_TRUE(image.ok());
    const CodeRange itself{ENTRY, 7};
    const CodeRange split_off{jump, 5};
    const auto emulated = [&](std::initializer_list<CodeRange> sources) {
        const auto point = choose_probe_point(image.value().code(), ENTRY, POST_SEND,
                                              std::span{sources.begin(), sources.size()});
        return point.ok() && point.value().emulated;
    };
    EXPECT_TRUE(emulated({itself}));
    EXPECT_FALSE(emulated({itself, split_off}));
}

TEST(ProbePoint, ShortJumpFromBeforeAPlaceInTheMiddle) {
    ElfBuilder elf;
    // je to the push; nop-like mov; from here: xor; push
    elf.code(ENTRY, {0x74, 0x05, 0x48, 0x8b, 0x76, 0x08, 0x90, 0x53});
    const auto image = ElfImage::parse(elf.build());
    ASSERT_TRUE(image.ok());
    const auto chosen = [&](std::uint64_t function) {
        const CodeRange sources[] = {{function, ENTRY + 8 - function}};
        return choose_probe_point(image.value().code(), ENTRY + 2, 0, sources);
    };
    // As if nothing were before it, the nop is as good as any.
    const auto alone = chosen(ENTRY + 2);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(alone.value().address, ENTRY + 6);
    elf.code(ENTRY, {0x74, 0x04, 0x48, 0x8b, 0x76, 0x08, 0x90, 0x53}); // je to the nop
    const auto jumped_over = ElfImage::parse(elf.build());
    ASSERT_TRUE(jumped_over.ok());
    const CodeRange whole[] = {{ENTRY, 8}};
    const auto passed = choose_probe_point(jumped_over.value().code(), ENTRY + 2, 0, whole);
    EXPECT_TRUE(!passed.ok() || !passed.value().emulated || passed.value().address != ENTRY + 6);
}

TEST(ProbePoint, RegistersThatTheCallerKeeps) {
    // mov %rsp,%rbp; push %rbx
    EXPECT_TRUE(choose({0x48, 0x89, 0xe5, 0x53}).emulated);
    EXPECT_FALSE(choose({0x48, 0x89, 0xe5, 0x53}, POST_SEND | REGISTER_RBP).emulated);
    // mov %esi,%r13d; push %rbx
    EXPECT_TRUE(choose({0x41, 0x89, 0xf5, 0x53}, REGISTER_R12).emulated);
    EXPECT_FALSE(choose({0x41, 0x89, 0xf5, 0x53}, REGISTER_R13).emulated);
}

TEST(ProbePoint, WhatTheKernelEmulates) {
    EXPECT_TRUE(choose({0x90}).emulated);
    EXPECT_TRUE(choose({0xe8, 0, 1, 0, 0}).emulated);              // call
    EXPECT_TRUE(choose({0x74, 0x10}).emulated);                    // je short
    EXPECT_TRUE(choose({0x57}).emulated);                          // push %rdi
    EXPECT_TRUE(choose({0xf2, 0xe9, 0, 1, 0, 0}).emulated);        // bnd jmp
    EXPECT_FALSE(choose({0x48, 0x83, 0xec, 0x08, 0xc3}).emulated); // sub; ret
    EXPECT_FALSE(choose({0x0f, 0x1f, 0x44, 0, 0, 0xc3}).emulated); // long nop: not before 6.18
    EXPECT_FALSE(choose({0x68, 1, 0, 0, 0, 0xc3}).emulated);       // push $1
    EXPECT_FALSE(choose({0xff, 0x77, 0x08, 0xc3}).emulated);       // push 8(%rdi)
    EXPECT_FALSE(choose({0x66, 0x57, 0xc3}).emulated);             // push %di
}

TEST(ProbePoint, NoCodeNoPoint) {
    ElfBuilder elf;
    elf.code(ENTRY, {0x06}); // no instruction in 64-bit mode
    const auto image = ElfImage::parse(elf.build());
    ASSERT_TRUE(image.ok());
    EXPECT_FALSE(choose_probe_point(image.value().code(), ENTRY, POST_SEND).ok());
    EXPECT_FALSE(choose_probe_point(image.value().code(), ElfBuilder::DATA, POST_SEND).ok());
    EXPECT_FALSE(choose_probe_point(image.value().code(), ~std::uint64_t{0}, POST_SEND).ok());
}

} // namespace
} // namespace collwire::elf
