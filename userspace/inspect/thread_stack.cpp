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
constexpr std::size_t MAX_INNER_FRAMES = 8; // below NCCL's
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

namespace {

// Walks from a frame to its caller.
class FrameWalk {
public:
    FrameWalk(const StackTop &top, std::span<const std::uint64_t> words, const StackReader &reader)
        : first_(top.sp), words_(words), reader_(reader), pc_(top.pc), sp_(top.sp), bp_(top.bp) {}

    [[nodiscard]] std::uint64_t pc() const { return pc_; }
    [[nodiscard]] CodeOwner owner() const { return reader_.owner_of(pc_); }

    // False: the caller is not known.
    bool step() {
        auto rule = reader_.frame_at(is_return_ ? pc_ - 1 : pc_);
        // A jump through the linkage table: nothing is on the stack but the return address.
        if (!rule && !is_return_ && owner() == CodeOwner::Nccl)
            rule = FrameRule{false, sizeof(std::uint64_t), std::nullopt};
        if (!rule || (rule->is_from_rbp && !bp_))
            return false;
        const std::uint64_t cfa =
            (rule->is_from_rbp ? *bp_ : sp_) + static_cast<std::uint64_t>(rule->cfa_offset);
        const auto caller = word_at(cfa - sizeof(std::uint64_t));
        if (cfa <= sp_ || !caller || reader_.owner_of(*caller) == CodeOwner::None ||
            !reader_.follows_call(*caller))
            return false;
        if (rule->saved_rbp)
            bp_ = word_at(cfa + static_cast<std::uint64_t>(*rule->saved_rbp));
        pc_ = *caller;
        sp_ = cfa;
        is_return_ = true;
        return true;
    }

    // To the innermost return address into other code than the runtime's, without the frames
    // between. False: there is none near.
    bool skip_runtime() {
        const std::size_t most = std::min(words_.size(), MAX_RUNTIME_WORDS);
        for (std::size_t i = 0; i < most; ++i) {
            const CodeOwner of_word = reader_.owner_of(words_[i]);
            if ((of_word != CodeOwner::Nccl && of_word != CodeOwner::Other) ||
                !reader_.follows_call(words_[i]))
                continue;
            pc_ = words_[i];
            sp_ = first_ + (i + 1) * sizeof(std::uint64_t);
            is_return_ = true;
            return true;
        }
        return false;
    }

private:
    [[nodiscard]] std::optional<std::uint64_t> word_at(std::uint64_t address) const {
        const std::uint64_t index = (address - first_) / sizeof(std::uint64_t);
        return address < first_ || (address - first_) % sizeof(std::uint64_t) != 0 ||
                       index >= words_.size()
                   ? std::nullopt
                   : std::optional{words_[index]};
    }

    std::uint64_t first_;
    std::span<const std::uint64_t> words_;
    const StackReader &reader_;
    std::uint64_t pc_, sp_;
    std::optional<std::uint64_t> bp_;
    bool is_return_ = false;
};

// Of a network plugin, or of a library that stands in for a function of the C library.
bool reach_nccl(FrameWalk &walk) {
    const bool is_runtime = walk.owner() == CodeOwner::Runtime;
    for (std::size_t i = 0; i < MAX_INNER_FRAMES; ++i) {
        if (walk.owner() == CodeOwner::Nccl)
            return true;
        if (!walk.step())
            return i == 0 && is_runtime && walk.skip_runtime() && walk.owner() == CodeOwner::Nccl;
    }
    return walk.owner() == CodeOwner::Nccl;
}

} // namespace

std::optional<NcclStack> nccl_stack(const StackTop &top, std::span<const std::uint64_t> words,
                                    const StackReader &reader) {
    FrameWalk walk{top, words, reader};
    if (!reach_nccl(walk))
        return std::nullopt;
    NcclStack stack;
    for (std::size_t depth = 0; depth < MAX_FRAMES && walk.owner() == CodeOwner::Nccl; ++depth) {
        const std::string_view name = reader.name_of(walk.pc());
        if (std::ranges::find(OWN_THREADS, name) != OWN_THREADS.end())
            return std::nullopt;
        if (is_exported(name))
            stack.called = name; // the outermost one
        else if (!name.empty() && stack.called.empty() &&
                 (stack.inside.empty() || stack.inside.back() != name))
            stack.inside.emplace_back(name);
        if (!walk.step())
            break;
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
