// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/thread_stack.h"

#include <algorithm>

#include "userspace/inventory/files.h"
#include "userspace/nccl/library/recipe.h"

namespace collwire::inspect {
namespace {

constexpr std::array<std::string_view, 10> RUNTIME_FILES{
    "libc.so", "libc-",     "libpthread", "libstdc++",       "libgcc_s",
    "ld-",     "libm.so.6", "libcuda.so", "libcuda_double.", "librt."};
constexpr std::size_t MAX_FRAMES = 32;
// A runtime's own frames above the system call. The GPU driver's are the largest.
constexpr std::size_t MAX_RUNTIME_WORDS = 2048;

// Wait for work by design. What earlier threads left on their stacks is further up.
constexpr std::array<std::string_view, 11> OWN_THREADS{
    "ncclProxyService",       "ncclProxyServiceUDS",   "ncclProxyProgress",
    "persistentSocketThread", "ncclIbAsyncThreadMain", "rasThreadMain",
    "ncclGinProgress",        "ncclGinProxyProgress",  "ncclRmaSocketProxyProgress",
    "ncclProfilerThreadFunc", "bootstrapAsyncSendMain"};

bool is_exported(std::string_view name) {
    // The recipe lists the exported functions before the others.
    const auto all = nccl::host_functions();
    const auto first_inside = std::ranges::find(all, std::string_view{"ncclAsyncJobMain"});
    return std::find(all.begin(), first_inside, name) != first_inside;
}

} // namespace

std::optional<StackTop> parse_syscall(std::string_view text) {
    const auto words = inventory::split(inventory::trim(text), ' ');
    // "NUMBER six arguments SP PC", or "-1 SP PC" outside of a system call.
    if (words.size() != 9 && !(words.size() == 3 && words[0] == "-1"))
        return std::nullopt;
    const auto number = [](std::string_view word) -> std::optional<std::uint64_t> {
        if (!word.starts_with("0x"))
            return std::nullopt;
        return inventory::parse_number(word.substr(2), 16);
    };
    const auto sp = number(words[words.size() - 2]), pc = number(words.back());
    return sp && pc ? std::optional{StackTop{*pc, *sp, std::nullopt}} : std::nullopt;
}

bool ends_in_call(std::span<const std::byte, CALL_BYTES> before) {
    const auto at = [&before](std::size_t back) {
        return std::to_integer<unsigned>(before[CALL_BYTES - back]);
    };
    if (at(5) == 0xe8)
        return true;
    // ff /2: the length follows from mod, rm and the SIB byte.
    for (std::size_t length = 2; length <= 7; ++length) {
        if (at(length) != 0xff || ((at(length - 1) >> 3U) & 7U) != 2)
            continue;
        const unsigned mod = at(length - 1) >> 6U, rm = at(length - 1) & 7U;
        const bool has_sib = mod != 3 && rm == 4;
        std::size_t displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
        if (mod == 0 && (rm == 5 || (has_sib && length >= 3 && (at(length - 2) & 7U) == 5)))
            displacement = 4;
        if (length == 2 + (has_sib ? 1U : 0U) + displacement)
            return true;
    }
    return false;
}

CodeOwner owner_of_file(std::string_view path) {
    const std::string_view name = inventory::base_name(path);
    if (name == "[vdso]" || std::ranges::any_of(RUNTIME_FILES, [name](std::string_view prefix) {
            return name.starts_with(prefix);
        }))
        return CodeOwner::Runtime;
    return CodeOwner::Other;
}

std::optional<NcclStack> nccl_stack(const StackTop &top, std::span<const std::uint64_t> words,
                                    const StackReader &reader) {
    const std::uint64_t first = top.sp;
    // The innermost frame of NCCL: its instruction, and rsp there.
    std::uint64_t pc = top.pc, sp = top.sp;
    std::optional<std::uint64_t> bp = top.bp;
    bool is_return = false;
    const CodeOwner owner = reader.owner_of(pc);
    if (owner == CodeOwner::Runtime) {
        std::size_t i = 0;
        for (; i < std::min(words.size(), MAX_RUNTIME_WORDS); ++i) {
            const CodeOwner of_word = reader.owner_of(words[i]);
            if ((of_word == CodeOwner::Nccl || of_word == CodeOwner::Other) &&
                reader.follows_call(words[i]))
                break;
        }
        if (i >= std::min(words.size(), MAX_RUNTIME_WORDS) ||
            reader.owner_of(words[i]) != CodeOwner::Nccl)
            return std::nullopt;
        pc = words[i];
        sp = first + (i + 1) * sizeof(std::uint64_t);
        is_return = true;
    } else if (owner != CodeOwner::Nccl) {
        return std::nullopt;
    }
    NcclStack stack;
    for (std::size_t depth = 0; depth < MAX_FRAMES; ++depth) {
        const std::string_view name = reader.name_of(pc);
        if (std::ranges::find(OWN_THREADS, name) != OWN_THREADS.end())
            return std::nullopt;
        if (is_exported(name))
            stack.called = name; // the outermost one
        else if (!name.empty() && stack.called.empty() &&
                 (stack.inside.empty() || stack.inside.back() != name))
            stack.inside.emplace_back(name);
        const auto rule = reader.frame_at(is_return ? pc - 1 : pc);
        if (!rule || (rule->is_from_rbp && !bp))
            break;
        const std::uint64_t cfa =
            (rule->is_from_rbp ? *bp : sp) + static_cast<std::uint64_t>(rule->cfa_offset);
        const auto word_at = [&](std::uint64_t address) -> std::optional<std::uint64_t> {
            const std::uint64_t index = (address - first) / sizeof(std::uint64_t);
            return address < first || (address - first) % sizeof(std::uint64_t) != 0 ||
                           index >= words.size()
                       ? std::nullopt
                       : std::optional{words[index]};
        };
        const auto caller = word_at(cfa - sizeof(std::uint64_t));
        if (cfa <= sp || !caller || !reader.follows_call(*caller) ||
            reader.owner_of(*caller) != CodeOwner::Nccl)
            break;
        if (rule->saved_rbp)
            bp = word_at(cfa + static_cast<std::uint64_t>(*rule->saved_rbp));
        pc = *caller;
        sp = cfa;
        is_return = true;
    }
    return stack;
}

std::string_view host_function_at(const nccl::LibraryLayout &layout, std::uint64_t address) {
    for (const auto &[name, pieces] : layout.host_functions)
        for (const nccl::CodePiece &piece : pieces)
            // A return address may be right behind its function's last instruction.
            if (address > piece.address && address - piece.address <= piece.bytes)
                return name;
    return {};
}

} // namespace collwire::inspect
