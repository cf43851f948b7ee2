// SPDX-License-Identifier: Apache-2.0
// Where a thread stands in NCCL, by its stack.
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "userspace/inspect/frame_rules.h"
#include "userspace/inspect/nccl_calls.h"
#include "userspace/inspect/thread_stack.h"

namespace collwire::test {
namespace {

using inspect::CodeOwner;
using inspect::FrameRule;
using inspect::Phase;
using inspect::StackTop;

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
    std::vector<std::byte> bytes;
    for (const unsigned value : values)
        bytes.push_back(static_cast<std::byte>(value));
    return bytes;
}

std::span<const std::byte, inspect::CALL_BYTES> last_of(const std::vector<std::byte> &bytes) {
    return std::span<const std::byte, inspect::CALL_BYTES>{bytes.data(), inspect::CALL_BYTES};
}

TEST(ThreadStack, SyscallFileOfASleepingThreadHasItsRegisters) {
    const auto top =
        inspect::parse_syscall("202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc4bd0 0x7f55e4c91117\n");
    ASSERT_TRUE(top);
    EXPECT_EQ(top->sp, 0x7ffc4bd0U);
    EXPECT_EQ(top->pc, 0x7f55e4c91117U);
    const auto outside = inspect::parse_syscall("-1 0x7ffc0010 0x7f0011\n");
    ASSERT_TRUE(outside);
    EXPECT_EQ(outside->pc, 0x7f0011U);
    for (const std::string_view text : {"running\n", "", "202 0x1 0x2\n", "1 2 3 4 5 6 7 8 9"})
        EXPECT_FALSE(inspect::parse_syscall(text)) << text;
}

TEST(ThreadStack, OnlyAddressesAfterACallAreReturnAddresses) {
    // call rel32; call *%rax; call *0x18(%rdi); call *0x1234(%rip); call *(%rax,%rbx,8)
    EXPECT_TRUE(inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0xe8, 1, 2, 3, 4}))));
    EXPECT_TRUE(
        inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0}))));
    EXPECT_TRUE(
        inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0x90, 0x90, 0xff, 0x57, 0x18}))));
    EXPECT_TRUE(inspect::ends_in_call(last_of(bytes_of({0x90, 0xff, 0x15, 0x34, 0x12, 0, 0}))));
    EXPECT_TRUE(
        inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0x90, 0x90, 0xff, 0x14, 0xd8}))));
    // jmp rel32; push; nothing.
    EXPECT_FALSE(inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0xe9, 1, 2, 3, 4}))));
    EXPECT_FALSE(
        inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xf0}))));
    EXPECT_FALSE(
        inspect::ends_in_call(last_of(bytes_of({0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}))));
}

TEST(ThreadStack, RuntimesAreNotThePrograms) {
    for (const std::string_view path :
         {"/usr/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/usr/lib/libstdc++.so.6", "[vdso]",
          "/usr/lib/libcuda.so.550.1"})
        EXPECT_EQ(inspect::owner_of_file(path), CodeOwner::Runtime) << path;
    for (const std::string_view path : {"/usr/bin/python3", "/usr/lib/libtorch_cuda.so"})
        EXPECT_EQ(inspect::owner_of_file(path), CodeOwner::Other) << path;
}

// NCCL at 0x1000, the program at 0x9000, the C library at 0x5000, as three regions.
class Code {
public:
    std::map<std::uint64_t, std::string_view> names;
    std::map<std::uint64_t, FrameRule> rules; // by return address - 1, or pc

    [[nodiscard]] inspect::StackReader reader() const {
        return {[](std::uint64_t at) {
                    return at >= 0x9000 && at < 0xa000   ? CodeOwner::Other
                           : at >= 0x5000 && at < 0x6000 ? CodeOwner::Runtime
                           : at >= 0x1000 && at < 0x2000 ? CodeOwner::Nccl
                                                         : CodeOwner::None;
                },
                [this](std::uint64_t at) {
                    const auto name = names.find(at);
                    return name == names.end() ? std::string_view{} : name->second;
                },
                [](std::uint64_t) { return true; },
                [this](std::uint64_t at) {
                    const auto rule = rules.find(at);
                    return rule == rules.end() ? std::nullopt : std::optional{rule->second};
                }};
    }
};

constexpr std::uint64_t STACK = 0x700000;

TEST(ThreadStack, FramesLeadToTheCalledFunctionPastWhatEarlierCallsLeft) {
    Code code;
    code.names = {
        {0x1100, "bootstrapInit"}, {0x1200, "ncclCommDestroy"}, {0x1300, "ncclCommInitRank"}};
    code.rules = {{0x10ff, {false, 24, {}}}, {0x12ff, {false, 8, {}}}};
    // recv's frame, bootstrapInit, an old return address of ncclCommDestroy, ncclCommInitRank.
    const std::vector<std::uint64_t> words{0, 0x1100, 0x1200, 0, 0x1300, 0x9100};
    const auto stack = inspect::nccl_stack(StackTop{0x5010, STACK, {}}, words, code.reader());
    ASSERT_TRUE(stack);
    EXPECT_EQ(stack->called, "ncclCommInitRank");
    EXPECT_EQ(stack->inside, std::vector<std::string>{"bootstrapInit"});
}

TEST(ThreadStack, FramePointersAreFollowedWhereTheCodeHasThem) {
    Code code;
    code.names = {{0x1100, "bootstrapRecv"}, {0x1300, "ncclGroupEnd"}};
    // The first saves rbp at CFA - 16, the second counts from rbp.
    code.rules = {{0x1100, {false, 24, -16}}, {0x12ff, {true, 16, -16}}};
    const std::vector<std::uint64_t> words{0, STACK + 32, 0x1300, 7, 0, 0x9100};
    const auto stack = inspect::nccl_stack(StackTop{0x1100, STACK, 1}, words, code.reader());
    ASSERT_TRUE(stack);
    EXPECT_EQ(stack->called, "ncclGroupEnd");
}

TEST(ThreadStack, ProgramThatSleepsIsNotInNcclWhateverIsFurtherUp) {
    Code code;
    code.names = {{0x1300, "ncclCommInitRank"}};
    const std::vector<std::uint64_t> words{0, 0x9200, 0x1300, 0x9100};
    EXPECT_FALSE(inspect::nccl_stack(StackTop{0x5010, STACK, {}}, words, code.reader()));
    EXPECT_FALSE(inspect::nccl_stack(StackTop{0x9010, STACK, {}}, words, code.reader()));
    EXPECT_FALSE(inspect::nccl_stack(StackTop{0x5010, STACK, {}}, {}, code.reader()));
}

TEST(ThreadStack, NcclsOwnThreadsAreNoCalls) {
    Code code;
    code.names = {{0x1100, "ncclProxyService"}, {0x1300, "bootstrapRoot"}};
    const std::vector<std::uint64_t> words{0x1100, 0x1300, 0x9100};
    EXPECT_FALSE(inspect::nccl_stack(StackTop{0x5010, STACK, {}}, words, code.reader()));
}

TEST(ThreadStack, BrokenChainEndsWithWhatIsKnown) {
    Code code;
    code.names = {{0x1100, "bootstrapInit"}};
    const std::vector<std::uint64_t> words{0x1100, 0x1300};
    for (const std::int64_t offset : {0, 16, 4096, -8}) {
        code.rules = {{0x10ff, {false, offset, {}}}};
        const auto stack = inspect::nccl_stack(StackTop{0x5010, STACK, {}}, words, code.reader());
        ASSERT_TRUE(stack);
        EXPECT_EQ(stack->called, "");
    }
}

// A common description as GCC writes it: "zR", code 1, data -8, return address 16, pc-relative;
// CFA = rsp + 8.
std::vector<std::byte> common() {
    return bytes_of({0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0});
}
// A function of 0x40 bytes, right at its own description: push %rbp at 0, sub $0x10,%rsp at 1,
// back at 0x30.
std::vector<std::byte> frame() {
    return bytes_of({0x1c, 0,    0,    0, 0xfc, 0xff, 0xff, 0xff, 0x40, 0,    0,    0,    0, 0x41,
                     0x0e, 0x10, 0x86, 2, 0x44, 0x0e, 0x20, 0x6b, 0x0e, 0x10, 0x41, 0x0e, 8});
}

TEST(FrameRules, FollowThePrologue) {
    const auto rule = [](std::uint64_t pc) {
        return inspect::frame_rule(common(), frame(), 0x8000, 0x8000 + pc);
    };
    ASSERT_TRUE(rule(0));
    EXPECT_EQ(rule(0)->cfa_offset, 8);
    EXPECT_FALSE(rule(0)->saved_rbp);
    EXPECT_EQ(rule(1)->cfa_offset, 16);
    EXPECT_EQ(rule(1)->saved_rbp, -16);
    EXPECT_EQ(rule(8)->cfa_offset, 32);
    EXPECT_EQ(rule(0x30)->cfa_offset, 16);
    EXPECT_EQ(rule(0x31)->cfa_offset, 8);
    EXPECT_FALSE(rule(0x40));
}

TEST(FrameRules, CutDescriptionsGiveNoRule) {
    const auto whole = frame(), shared = common();
    for (std::size_t n = 0; n < 13; ++n)
        EXPECT_FALSE(inspect::frame_rule(shared, std::span{whole}.first(n), 0x8000, 0x8008)) << n;
    for (std::size_t n = 0; n < 13; ++n)
        EXPECT_FALSE(inspect::frame_rule(std::span{shared}.first(n), whole, 0x8000, 0x8008)) << n;
}

inspect::UnreadyComm comm_of(std::int32_t rank, std::int32_t n_ranks) {
    inspect::UnreadyComm comm;
    comm.rank = rank;
    comm.n_ranks = n_ranks;
    return comm;
}

constexpr std::int32_t NONE = 0, CONNECTING = 4, READY = 7;

TEST(UnreadyCommunicator, WaitsForTheRankThatItsRingNeeds) {
    const std::vector<std::string> inside;
    auto root = comm_of(3, 4);
    inspect::judge_phase(root, true, NONE, NONE, false, "", inside);
    EXPECT_EQ(root.phase, Phase::Root);
    EXPECT_EQ(root.awaits.at(0).rank, 0);
    auto connecting = comm_of(1, 4);
    inspect::judge_phase(connecting, true, CONNECTING, NONE, false, "10.0.0.2:4000", inside);
    EXPECT_EQ(connecting.phase, Phase::Ring);
    EXPECT_EQ(connecting.awaits.at(0).rank, 2);
    EXPECT_EQ(connecting.awaits.at(0).address, "10.0.0.2:4000");
    auto accepting = comm_of(0, 4);
    inspect::judge_phase(accepting, true, READY, NONE, false, "", inside);
    EXPECT_EQ(accepting.awaits.at(0).rank, 3);
    auto exchange = comm_of(1, 4);
    inspect::judge_phase(exchange, true, READY, READY, false, "", inside);
    EXPECT_EQ(exchange.phase, Phase::Exchange);
    EXPECT_EQ(exchange.awaits.at(0).rank, 0);
    auto transports = comm_of(1, 4);
    inspect::judge_phase(transports, true, READY, READY, true, "", inside);
    EXPECT_EQ(transports.phase, Phase::Transports);
    EXPECT_TRUE(transports.awaits.empty());
}

// Until NCCL 2.22.
TEST(UnreadyCommunicator, ARootThatAnswersAllAtOnceNamesNoRank) {
    auto comm = comm_of(0, 4);
    inspect::judge_phase(comm, true, NONE, NONE, false, "", {}, inspect::RootAnswers::AllCame);
    EXPECT_EQ(comm.phase, Phase::Root);
    EXPECT_TRUE(comm.awaits.empty());
}

TEST(UnreadyCommunicator, SaysNothingThatCouldNotBeRead) {
    auto unknown = comm_of(1, 4);
    inspect::judge_phase(unknown, std::nullopt, NONE, NONE, std::nullopt, "", {});
    EXPECT_EQ(unknown.phase, Phase::Unknown);
    EXPECT_TRUE(unknown.awaits.empty());
    auto early = comm_of(-1, 0);
    inspect::judge_phase(early, false, NONE, NONE, std::nullopt, "", {});
    EXPECT_EQ(early.phase, Phase::Start);
    EXPECT_TRUE(early.awaits.empty());
}

TEST(UnreadyCommunicator, ConnectsToARootThatDoesNotAccept) {
    auto comm = comm_of(1, 4);
    comm.root = "10.0.0.1:4000";
    const std::vector<std::string> inside{"ncclSocketConnect", "sendToRoot", "bootstrapInit"};
    inspect::judge_phase(comm, true, NONE, NONE, false, "", inside);
    EXPECT_EQ(comm.awaits.at(0).rank, -1);
    EXPECT_EQ(comm.awaits.at(0).address, "10.0.0.1:4000");
}

} // namespace
} // namespace collwire::test
