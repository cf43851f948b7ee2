// SPDX-License-Identifier: Apache-2.0
// Where a thread stands in NCCL's host code, by the return addresses on its stack. The thread is
// neither stopped nor traced.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "userspace/inspect/frame_rules.h"
#include "userspace/nccl/layout/library_layout.h"

namespace collwire::inspect {

// The registers of a thread in user space.
struct StackTop {
    std::uint64_t pc = 0, sp = 0;
    std::optional<std::uint64_t> bp; // rbp, where it is known
};
// /proc/PID/task/TID/syscall (proc(5)): of a thread that sleeps. Nothing: it runs.
[[nodiscard]] std::optional<StackTop> parse_syscall(std::string_view text);

// Whether the bytes before a return address end in a call (x86-64: e8 rel32, and ff /2 of 2 to 7
// bytes).
inline constexpr std::size_t CALL_BYTES = 7;
[[nodiscard]] bool ends_in_call(std::span<const std::byte, CALL_BYTES> before);

enum class CodeOwner {
    None,    // no code
    Nccl,    // the library
    Runtime, // below everybody: the C and C++ libraries, the loader, the GPU driver
    Other,   // the program
};
// By the name of a mapped file that is not NCCL.
[[nodiscard]] CodeOwner owner_of_file(std::string_view path);

struct StackReader {
    std::function<CodeOwner(std::uint64_t)> owner_of;
    // Of a code address in NCCL; empty: another function.
    std::function<std::string_view(std::uint64_t)> name_of;
    // Whether a call is right before this address.
    std::function<bool(std::uint64_t)> follows_call;
    // The frame at an instruction.
    std::function<std::optional<FrameRule>(std::uint64_t)> frame_at;
};

struct NcclStack {
    std::string called;              // the exported function; empty: not known
    std::vector<std::string> inside; // known functions below it, innermost first
};
// `words`: the stack from sp up. Nothing: no frame of NCCL's is
// near the top. Return addresses that earlier calls left on the stack do not count: each frame
// leads to its caller. Where a runtime's frames have no rules, its innermost return address counts.
[[nodiscard]] std::optional<NcclStack>
nccl_stack(const StackTop &top, std::span<const std::uint64_t> words, const StackReader &reader);

// The function of `layout` at an address of the file; empty: none that is known.
[[nodiscard]] std::string_view host_function_at(const nccl::LibraryLayout &layout,
                                                std::uint64_t address);

} // namespace collwire::inspect
