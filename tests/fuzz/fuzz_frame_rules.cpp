// SPDX-License-Identifier: Apache-2.0
// Call frame information of a library in the memory of a process. The input is that memory.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "userspace/inspect/frame_rules.h"

namespace {

constexpr std::uint64_t BASE = 0x10000;
constexpr std::size_t MAX_BYTES = 1 << 16;
constexpr std::uint64_t PC_STEP = 13;

void check(const std::optional<collwire::inspect::FrameRule> &rule,
           const std::optional<collwire::inspect::FrameRule> &again) {
    if (rule.has_value() != again.has_value() ||
        (rule && (rule->cfa_offset != again->cfa_offset || rule->saved_rbp != again->saved_rbp)))
        std::abort();
}

} // namespace

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size < 2 || size > MAX_BYTES)
        return 0;
    const auto memory = std::as_bytes(std::span{data, size});
    const auto read = [memory](std::uint64_t address, std::span<std::byte> into) {
        if (address < BASE || address - BASE > memory.size() ||
            into.size() > memory.size() - (address - BASE))
            return false;
        if (!into.empty())
            std::memcpy(into.data(), memory.data() + (address - BASE), into.size());
        return true;
    };
    const collwire::inspect::FrameRules rules{read, BASE};
    for (std::uint64_t pc = BASE; pc < BASE + size; pc += PC_STEP)
        check(rules.at(pc), rules.at(pc));
    // The same bytes as one common and one frame description.
    const std::size_t half = std::size_t{data[0]} * size / 256;
    const auto common = memory.subspan(1, half), frame = memory.subspan(1 + half);
    for (const std::uint64_t pc : {BASE, BASE + data[1], ~std::uint64_t{0}})
        check(collwire::inspect::frame_rule(common, frame, BASE, pc),
              collwire::inspect::frame_rule(common, frame, BASE, pc));
    return 0;
}
