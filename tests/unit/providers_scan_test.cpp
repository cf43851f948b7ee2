// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/elf_builder.h"
#include "userspace/verbs/ops_layout.h"
#include "userspace/verbs/ops_scan.h"

namespace collwire::verbs {
namespace {

using test::ElfBuilder;
constexpr std::uint64_t TABLE = ElfBuilder::DATA + 0x100;
constexpr std::uint64_t GOT_SLOT = ElfBuilder::DATA + 0x10;
constexpr std::uint64_t STUB = ElfBuilder::CODE + 0x100;
constexpr std::uint64_t CALLER = ElfBuilder::CODE + 0x200;
constexpr std::uint64_t FUNCTIONS = ElfBuilder::CODE + 0x400; // of slot i: + 16 * i

const OpsLayout &layout_of(int release) {
    const auto &all = ops_layouts();
    return *std::ranges::find_if(all, [release](const OpsLayout &layout) {
        return layout.first_release <= release && release <= layout.last_release;
    });
}

// What most drivers fill in.
const std::set<std::string_view> SPARSE = {
    "alloc_pd",  "create_ah",       "create_cq",  "create_qp",    "dealloc_pd",
    "dereg_mr",  "destroy_ah",      "destroy_cq", "destroy_qp",   "free_context",
    "modify_qp", "poll_cq",         "post_recv",  "post_send",    "query_port",
    "query_qp",  "query_device_ex", "reg_mr",     "req_notify_cq"};

std::uint64_t function_of(const OpsLayout &layout, std::string_view slot) {
    return FUNCTIONS + 16 * *layout.index(slot);
}

void add_table(ElfBuilder &elf, const OpsLayout &layout, const std::set<std::string_view> &filled,
               std::uint64_t base = TABLE) {
    for (std::size_t i = 0; i < layout.slots.size(); ++i) {
        if (!filled.contains(layout.slots[i]))
            continue;
        if (layout.slots[i] == "req_notify_cq")
            elf.import_pointer(base + 8 * i, "ibv_cmd_req_notify_cq", R_X86_64_64);
        else
            elf.pointer(base + 8 * i, FUNCTIONS + 16 * i);
    }
}

void little_endian(ElfBuilder &elf, std::uint64_t at, std::uint64_t value) {
    for (int i = 0; i < 4; ++i)
        elf.code(at + static_cast<unsigned>(i), {static_cast<int>(value >> (8 * i) & 0xff)});
}

// lea TABLE(%rip),%rsi; mov %rbp,%rdi; call verbs_set_ops@plt
void add_call(ElfBuilder &elf, std::uint64_t table = TABLE, std::uint64_t at = CALLER) {
    elf.import_pointer(GOT_SLOT, "verbs_set_ops", R_X86_64_JUMP_SLOT);
    elf.code(STUB, {0xff, 0x25});
    little_endian(elf, STUB + 2, GOT_SLOT - (STUB + 6));
    elf.code(at, {0x48, 0x8d, 0x35});
    little_endian(elf, at + 3, table - (at + 7));
    elf.code(at + 7, {0x48, 0x89, 0xef, 0xe8});
    little_endian(elf, at + 11, STUB - (at + 15));
}

Result<PostSendFunctions> scan(ElfBuilder &elf) {
    auto image = elf::ElfImage::parse(elf.build());
    if (!image)
        return std::move(image).failure();
    return find_post_send(*image);
}

TEST(OpsLayouts, AreThoseOfTheReleases) {
    // slots and 1-based post_send per release, from libibverbs/driver.h
    const std::vector<std::tuple<int, std::size_t, std::size_t>> known = {
        {22, 66, 52}, {33, 72, 55}, {34, 73, 55}, {39, 76, 56}, {44, 76, 56},
        {56, 76, 56}, {58, 76, 56}, {59, 79, 58}, {61, 79, 58}, {62, 81, 59},
        {63, 81, 59}, {64, 83, 61}, {65, 93, 65}, {99, 93, 65}};
    for (const auto &[release, slots, post_send] : known) {
        const OpsLayout &layout = layout_of(release);
        EXPECT_EQ(layout.slots.size(), slots) << release;
        EXPECT_EQ(*layout.index("post_send") + 1, post_send) << release;
        EXPECT_EQ(*layout.index("post_recv") + 1, *layout.index("post_send")) << release;
        EXPECT_TRUE(std::ranges::is_sorted(layout.slots)) << release;
    }
}

TEST(OpsLayouts, PrivateAbiNarrowsThemDown) {
    EXPECT_TRUE(layout_of(44).possible_in(34));
    EXPECT_TRUE(layout_of(34).possible_in(34));
    EXPECT_FALSE(layout_of(33).possible_in(34));
    EXPECT_FALSE(layout_of(59).possible_in(34));
    EXPECT_TRUE(layout_of(58).possible_in(57));
    EXPECT_TRUE(layout_of(62).possible_in(59));
    EXPECT_FALSE(layout_of(64).possible_in(59));
    EXPECT_TRUE(layout_of(22).possible_in(27));
    EXPECT_FALSE(layout_of(28).possible_in(27));
    for (const OpsLayout &layout : ops_layouts()) {
        EXPECT_TRUE(layout.possible_in(0));
        EXPECT_TRUE(layout.possible_in(2404));
    }
}

TEST(FindPostSend, InEveryOrderThroughTheCall) {
    for (const OpsLayout &layout : ops_layouts()) {
        ElfBuilder elf;
        add_table(elf, layout, SPARSE);
        add_call(elf);
        const auto found = scan(elf);
        ASSERT_TRUE(found.ok()) << layout.releases << ": " << found.failure().message;
        EXPECT_EQ(found.value().addresses, std::vector{function_of(layout, "post_send")})
            << layout.releases << ": " << found.value().evidence;
    }
}

TEST(FindPostSend, InEveryOrderByContentsAlone) {
    for (const OpsLayout &layout : ops_layouts()) {
        ElfBuilder elf;
        add_table(elf, layout, SPARSE);
        const auto found = scan(elf);
        ASSERT_TRUE(found.ok()) << layout.releases << ": " << found.failure().message;
        EXPECT_EQ(found.value().addresses, std::vector{function_of(layout, "post_send")});
    }
}

TEST(FindPostSend, PackedRelocations) {
    ElfBuilder elf;
    const OpsLayout &layout = layout_of(56);
    for (std::size_t i = 0; i < layout.slots.size(); ++i)
        if (SPARSE.contains(layout.slots[i]))
            elf.packed_pointer(TABLE + 8 * i, FUNCTIONS + 16 * i);
    const auto found = scan(elf);
    ASSERT_TRUE(found.ok()) << found.failure().message;
    EXPECT_EQ(found.value().addresses, std::vector{function_of(layout, "post_send")});
}

// A driver that fills in every slot fits shorter orders, too: the ABI and the end decide.
TEST(FindPostSend, TableWithoutAGap) {
    const OpsLayout &layout = layout_of(50);
    const std::set<std::string_view> all(layout.slots.begin(), layout.slots.end());
    ElfBuilder elf;
    add_table(elf, layout, all);
    elf.pointer(TABLE + 8 * layout.slots.size(), FUNCTIONS); // the next object, 32-byte aligned
    add_call(elf);
    elf.private_abi("IBVERBS_PRIVATE_34");
    const auto found = scan(elf);
    ASSERT_TRUE(found.ok()) << found.failure().message;
    EXPECT_EQ(found.value().addresses, std::vector{function_of(layout, "post_send")});
}

TEST(FindPostSend, TwoAnswersAreNone) {
    const OpsLayout &layout = layout_of(50);
    const std::set<std::string_view> all(layout.slots.begin(), layout.slots.end());
    ElfBuilder elf;
    add_table(elf, layout, all);
    elf.pointer(TABLE + 8 * layout.slots.size(), FUNCTIONS);
    add_call(elf); // without an ABI: 72 slots of release 33 end 32-byte aligned, too
    const auto found = scan(elf);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.failure().kind, ErrorKind::Unsupported);
    EXPECT_NE(found.failure().message.find("candidate tables"), std::string::npos);
}

// Some drivers have a common table and one for each generation of their hardware.
TEST(FindPostSend, SplitTables) {
    const OpsLayout &layout = layout_of(44);
    const std::set<std::string_view> generation = {"poll_cq", "post_recv", "post_send"};
    auto common = SPARSE;
    for (const auto name : generation)
        common.erase(name);
    ElfBuilder elf;
    add_table(elf, layout, common, TABLE);
    const std::uint64_t second = TABLE + 0x280;
    add_table(elf, layout, generation, second);
    add_call(elf, TABLE, CALLER);
    add_call(elf, second, CALLER + 0x40);
    const auto found = scan(elf);
    ASSERT_TRUE(found.ok()) << found.failure().message;
    EXPECT_EQ(found.value().addresses, std::vector{function_of(layout, "post_send")});
}

TEST(FindPostSend, LeavesAloneWhatIsNoTable) {
    ElfBuilder empty;
    EXPECT_FALSE(scan(empty).ok());

    auto incomplete = SPARSE;
    incomplete.erase("dereg_mr");
    ElfBuilder without;
    add_table(without, layout_of(44), incomplete);
    add_call(without);
    EXPECT_FALSE(scan(without).ok());

    auto unpaired = SPARSE;
    unpaired.erase("destroy_ah");
    ElfBuilder half;
    add_table(half, layout_of(44), unpaired);
    add_call(half);
    EXPECT_FALSE(scan(half).ok());

    ElfBuilder number; // a slot that holds a number is not a slot
    add_table(number, layout_of(44), SPARSE);
    number.raw(TABLE + 8 * *layout_of(44).index("advise_mr"), 5);
    add_call(number);
    EXPECT_FALSE(scan(number).ok());

    ElfBuilder data; // a pointer to data is no function
    add_table(data, layout_of(44), SPARSE);
    data.pointer(TABLE + 8 * *layout_of(44).index("advise_mr"), TABLE);
    add_call(data);
    EXPECT_FALSE(scan(data).ok());
}

TEST(ElfImage, BadFilesAreNamed) {
    ElfBuilder elf;
    add_table(elf, layout_of(44), SPARSE);
    const auto good = elf.build();
    EXPECT_EQ(elf::ElfImage::parse({}).failure().kind, ErrorKind::BadInput);
    auto magic = good;
    magic[0] = std::byte{0};
    EXPECT_NE(elf::ElfImage::parse(magic).failure().message.find("no ELF magic"),
              std::string::npos);
    auto other = good;
    other[18] = std::byte{183}; // EM_AARCH64
    EXPECT_EQ(elf::ElfImage::parse(other).failure().kind, ErrorKind::Unsupported);
    for (std::size_t size = 0; size < good.size(); size += 97) {
        const auto cut =
            elf::ElfImage::parse({good.begin(), good.begin() + static_cast<long>(size)});
        ASSERT_FALSE(cut.ok()) << size;
        EXPECT_EQ(cut.failure().kind, ErrorKind::BadInput) << size;
    }
}

// Bytes of the headers and tables, changed: an answer or an error, never a crash.
TEST(ElfImage, SurvivesChangedBytes) {
    ElfBuilder elf;
    add_table(elf, layout_of(44), SPARSE);
    add_call(elf);
    const auto good = elf.build();
    for (std::size_t at = 0; at < 0x600; at += 5) {
        for (const int value : {0x00, 0xff}) {
            auto changed = good;
            changed[at] = static_cast<std::byte>(value);
            if (const auto image = elf::ElfImage::parse(std::move(changed)); image.ok())
                (void)find_post_send(image.value());
        }
    }
}

} // namespace
} // namespace collwire::verbs
