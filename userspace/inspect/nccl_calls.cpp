// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/nccl_calls.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/nccl_layout.h"
#include "correlate/capture/nccl_names.h"
#include "userspace/inventory/files.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/unready_comms.h"

namespace collwire::inspect {
namespace {

constexpr std::size_t MAX_THREADS = 4096;
constexpr std::size_t STACK_WORDS = 8192; // 64 KiB
constexpr std::uint64_t ALIGNMENT = 16;   // of what malloc returns
constexpr std::int32_t MAX_RANKS = 1 << 20;
constexpr std::uint64_t NS_PER_S = 1'000'000'000;
// In NCCL's struct extInfo: where a rank that reports to the bootstrap root listens for it.
constexpr std::uint32_t ADDRESS_BEFORE_2_23 = 8;
constexpr std::string_view MAKER = "ncclCommInitRankFunc";

std::vector<std::uint32_t> threads_of(pid_t pid) {
    std::vector<std::uint32_t> tids;
    for (const std::string &name : inventory::list_directory(fmt::format("/proc/{}/task", pid)))
        if (const auto tid = inventory::parse_number(name); tid && tids.size() < MAX_THREADS)
            tids.push_back(static_cast<std::uint32_t>(*tid));
    return tids;
}

// Nothing: it runs, or may not be read.
std::optional<StackTop> top_of(pid_t pid, std::uint32_t tid) {
    const auto text = inventory::read_file(fmt::format("/proc/{}/task/{}/syscall", pid, tid),
                                           inventory::small_file_bytes);
    return text ? parse_syscall(*text) : std::nullopt;
}

// The kernel lists mappings by address. There may be thousands.
const process::Mapping *mapping_at(const process::ProcessView &view, std::uint64_t address) {
    const auto &mappings = view.mappings();
    auto after = std::ranges::upper_bound(mappings, address, {}, &process::Mapping::begin);
    return after == mappings.begin() || address >= std::prev(after)->end ? nullptr
                                                                         : &*std::prev(after);
}

bool is_heap_address(const process::ProcessView &view, std::uint64_t address) {
    const process::Mapping *mapping =
        address % ALIGNMENT == 0 ? mapping_at(view, address) : nullptr;
    return mapping != nullptr && mapping->writable;
}

bool has_call(std::span<const std::string> inside, std::string_view name) {
    return std::ranges::find(inside, name) != inside.end();
}

// Other memory may have the communicator's address at the same offset: the one with the most that
// agrees with the communicator is the job.
std::optional<nccl::InitJob> init_job_of(const process::ProcessView &view,
                                         const nccl::LibraryLayout &layout,
                                         const std::set<std::uint64_t> &pointers,
                                         const nccl::UnreadyComm &comm) {
    std::optional<nccl::InitJob> best;
    int best_agreed = -1;
    for (const std::uint64_t pointer : pointers) {
        auto job = nccl::read_init_job(view, layout, pointer, comm.address);
        if (!job || (job->parent != 0 && !is_heap_address(view, job->parent)))
            continue;
        const bool has_place = job->parent != 0 || !job->root.empty();
        const bool has_ranks =
            job->n_ranks > 0 &&
            (comm.n_ranks == 0 || (job->n_ranks == comm.n_ranks && job->rank == comm.rank));
        const int agreed = (has_place ? 2 : 0) + (has_ranks ? 1 : 0);
        if (agreed > best_agreed) {
            best = std::move(job);
            best_agreed = agreed;
        }
    }
    return best;
}

// Until 2.22 no root is named in what a rank reports, and its address comes first.
RootAnswers root_answers(const nccl::LibraryLayout &layout) {
    const std::uint32_t address =
        nccl::field_offset(layout, "extInfo.listenRootAddress|extInfo.extAddressListenRoot");
    return address == ADDRESS_BEFORE_2_23 ? RootAnswers::AllCame : RootAnswers::NextCame;
}

UnreadyComm describe(const nccl::UnreadyComm &read, const nccl::LibraryLayout &layout,
                     const CallFound *call, const std::optional<nccl::InitJob> &job) {
    UnreadyComm comm;
    comm.address = read.address;
    comm.hash = read.hash;
    comm.magic = read.magic;
    comm.rank = read.rank;
    comm.n_ranks = read.n_ranks;
    comm.device = read.device;
    if (read.async_result)
        comm.async_result =
            capture::nccl_result_name(static_cast<std::uint64_t>(*read.async_result));
    if (call != nullptr) {
        comm.tid = call->tid;
        // NCCL starts a thread for each communicator that is made in a group or without blocking.
        const auto ticks = process::start_ticks(static_cast<pid_t>(call->tid));
        const std::uint64_t now_ns = clock_ns(CLOCK_BOOTTIME);
        const auto per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
        const bool is_nccls =
            call->stack.called.empty() && has_call(call->stack.inside, "ncclAsyncJobMain");
        if (is_nccls && ticks && *ticks / per_second < now_ns / NS_PER_S)
            comm.for_ns = now_ns - *ticks * (NS_PER_S / per_second);
    }
    if (job) {
        comm.parent = job->parent;
        comm.root = job->root;
        if (comm.n_ranks == 0) {
            comm.rank = job->rank;
            comm.n_ranks = job->n_ranks;
        }
    }
    const nccl::UnreadyBootstrap ring = read.bootstrap.value_or(nccl::UnreadyBootstrap{});
    judge_phase(
        comm, read.is_bootstrap_known ? std::optional{read.bootstrap.has_value()} : std::nullopt,
        ring.to_next.state, ring.from_previous.state, ring.has_addresses, ring.to_next.remote,
        call == nullptr ? std::span<const std::string>{} : call->stack.inside,
        root_answers(layout));
    return comm;
}

} // namespace

void judge_phase(UnreadyComm &comm, std::optional<bool> has_bootstrap, std::int32_t to_next,
                 std::int32_t from_previous, std::optional<bool> has_addresses,
                 const std::string &next_address, std::span<const std::string> inside,
                 RootAnswers answers) {
    constexpr auto NONE = static_cast<std::int32_t>(nccl::SocketState::None);
    constexpr auto READY = static_cast<std::int32_t>(nccl::SocketState::Ready);
    if (!has_bootstrap)
        return;
    if (!*has_bootstrap) {
        // In a split all ranks of the parent exchange their colors first (commGetSplitInfo).
        comm.phase = comm.parent != 0 && has_call(inside, "bootstrapAllGather") ? Phase::Parent
                                                                                : Phase::Start;
        return;
    }
    const bool has_ranks = comm.n_ranks > 0 && comm.rank >= 0;
    const std::int32_t next = has_ranks ? (comm.rank + 1) % comm.n_ranks : -1;
    const std::int32_t previous = has_ranks ? (comm.rank + comm.n_ranks - 1) % comm.n_ranks : -1;
    if (to_next == NONE) {
        // The root answers as bootstrap.cc (bootstrapRoot) of the version does; in a split the next
        // rank itself sends its address (bootstrapSplit).
        comm.phase = comm.parent != 0 ? Phase::Parent : Phase::Root;
        if (has_call(inside, "sendToRoot") || has_call(inside, "ncclSocketConnect"))
            comm.awaits.push_back({-1, comm.root, "the bootstrap root does not accept"});
        else if (has_ranks && (comm.parent != 0 || answers == RootAnswers::NextCame))
            comm.awaits.push_back({next,
                                   {},
                                   comm.parent != 0 ? "its address does not come over the parent"
                                                    : "it has not reported to the bootstrap"});
        return;
    }
    if (to_next != READY || from_previous != READY) {
        comm.phase = Phase::Ring;
        if (to_next != READY && has_ranks)
            comm.awaits.push_back({next, next_address, "it does not accept the connection"});
        else if (has_ranks)
            comm.awaits.push_back({previous, {}, "it has not connected"});
        return;
    }
    if (has_addresses == false) {
        comm.phase = Phase::Exchange;
        if (has_ranks)
            comm.awaits.push_back({previous, {}, "its part of the exchange does not arrive"});
        return;
    }
    comm.phase = Phase::Transports;
    if (has_ranks && has_call(inside, "bootstrapAllGather"))
        comm.awaits.push_back({previous, {}, "its part of the exchange does not arrive"});
}

NcclCalls::NcclCalls(const process::ProcessView &view, const std::vector<Image> &images,
                     const std::vector<UsedImage> &used)
    : view_(view), images_(images), used_(used) {}

void NcclCalls::first_look() {
    for (const std::uint32_t tid : threads_of(view_.pid())) {
        const auto top = top_of(view_.pid(), tid);
        if (!top)
            sampler_.add(tid);
        else if (call_of(tid, *top, {}))
            inside_.insert(tid);
    }
}

std::vector<CallFound> NcclCalls::second_look() const {
    std::vector<CallFound> calls;
    for (const std::uint32_t tid : threads_of(view_.pid())) {
        auto samples = sampler_.samples(tid);
        if (samples.empty() && !inside_.contains(tid))
            continue;
        if (const auto now = top_of(view_.pid(), tid))
            samples.insert(samples.begin(), {*now, {}});
        std::optional<CallFound> best;
        // The kernel may have sampled a part of the stack alone. What it has not sampled is read
        // now, and so is all of it where the frames do not lead to a call.
        for (const bool is_sampled : {true, false})
            for (const ThreadSampler::Sample &sample : samples) {
                if (best && !best->stack.called.empty())
                    break;
                auto call = call_of(tid, sample.top,
                                    is_sampled ? sample.words : std::vector<std::uint64_t>{});
                if (call && (!best || !call->stack.called.empty() ||
                             call->stack.inside.size() > best->stack.inside.size()))
                    best = std::move(call);
            }
        if (best)
            calls.push_back(std::move(*best));
    }
    return calls;
}

std::optional<CallFound> NcclCalls::call_of(std::uint32_t tid, const StackTop &top,
                                            std::vector<std::uint64_t> sampled) const {
    const process::Mapping *stack = mapping_at(view_, top.sp);
    if (stack == nullptr || !stack->writable)
        return std::nullopt;
    CallFound call;
    call.tid = tid;
    if (top.sp % 8 != 0)
        return std::nullopt;
    // The frames above what was sampled with the registers stay as they are while the thread runs.
    call.words = std::move(sampled);
    const std::size_t n_sampled = call.words.size();
    const std::uint64_t rest = top.sp + n_sampled * 8;
    call.words.resize(n_sampled + std::min<std::uint64_t>(
                                      STACK_WORDS, (stack->end - std::min(stack->end, rest)) / 8));
    if (!view_.read(rest, std::as_writable_bytes(std::span{call.words}.subspan(n_sampled))))
        call.words.resize(n_sampled);
    if (call.words.empty())
        return std::nullopt;
    std::optional<std::size_t> library;
    const StackReader reader{[this](std::uint64_t address) { return owner_of(address); },
                             [this, &library](std::uint64_t address) -> std::string_view {
                                 const auto used = library_at(address);
                                 if (!used)
                                     return {};
                                 library = used;
                                 return host_function_at(images_[used_[*used].image].layout,
                                                         address - used_[*used].bias);
                             },
                             [this](std::uint64_t address) { return follows_call(address); },
                             [this](std::uint64_t address) { return frame_at(address); }};
    auto found = nccl_stack(top, call.words, reader);
    if (!found || !library)
        return std::nullopt;
    call.stack = std::move(*found);
    call.used = *library;
    return call;
}

std::optional<std::size_t> NcclCalls::library_at(std::uint64_t address) const {
    const process::Mapping *mapping = mapping_at(view_, address);
    if (mapping == nullptr || !mapping->executable)
        return std::nullopt;
    for (std::size_t i = 0; i < used_.size(); ++i)
        if (used_[i].path == mapping->path)
            return i;
    return std::nullopt;
}

CodeOwner NcclCalls::owner_of(std::uint64_t address) const {
    const process::Mapping *mapping = mapping_at(view_, address);
    if (mapping == nullptr || !mapping->executable)
        return CodeOwner::None;
    return library_at(address) ? CodeOwner::Nccl : owner_of_file(mapping->path);
}

std::optional<FrameRule> NcclCalls::frame_at(std::uint64_t address) const {
    const process::Mapping *mapping = mapping_at(view_, address);
    if (mapping == nullptr || mapping->inode == 0)
        return std::nullopt;
    // The pieces of a file are next to each other.
    const process::Mapping *first = view_.mappings().data();
    const process::Mapping *head = mapping;
    while (head != first && head->file_offset != 0 && std::prev(head)->path == mapping->path)
        head = std::prev(head);
    if (head->file_offset != 0)
        return std::nullopt;
    auto rules = frames_.find(head->begin);
    if (rules == frames_.end()) {
        const auto read = [this](std::uint64_t at, std::span<std::byte> into) {
            return view_.read(at, into);
        };
        rules = frames_.emplace(head->begin, FrameRules{read, head->begin}).first;
    }
    return rules->second.at(address);
}

bool NcclCalls::follows_call(std::uint64_t address) const {
    const auto known = follows_call_.find(address);
    if (known != follows_call_.end())
        return known->second;
    const auto bytes = view_.read<std::array<std::byte, CALL_BYTES>>(address - CALL_BYTES);
    const bool follows = bytes && ends_in_call(*bytes);
    follows_call_.emplace(address, follows);
    return follows;
}

std::vector<UnreadyComm> unready_comms(const process::ProcessView &view,
                                       const std::vector<Image> &images,
                                       const std::vector<UsedImage> &used,
                                       std::span<const CallFound> calls,
                                       std::span<const std::uint64_t> addresses) {
    std::map<std::uint64_t, UnreadyComm> found;
    for (const CallFound &call : calls) {
        const nccl::LibraryLayout &layout = images[used[call.used].image].layout;
        std::set<std::uint64_t> pointers;
        for (const std::uint64_t word : call.words) {
            if (is_heap_address(view, word))
                pointers.insert(word);
        }
        for (const std::uint64_t pointer : pointers) {
            const auto comm = nccl::read_unready_comm(view, layout, pointer);
            if (!comm)
                continue;
            const auto job = init_job_of(view, layout, pointers, *comm);
            // The program's own thread may wait for the one that makes it.
            if (!found.contains(pointer) || has_call(call.stack.inside, MAKER))
                found.insert_or_assign(pointer, describe(*comm, layout, &call, job));
        }
    }
    for (const std::uint64_t address : addresses)
        for (const UsedImage &one : used)
            if (const auto comm =
                    found.contains(address)
                        ? std::nullopt
                        : nccl::read_unready_comm(view, images[one.image].layout, address))
                found.emplace(address,
                              describe(*comm, images[one.image].layout, nullptr, std::nullopt));
    std::vector<UnreadyComm> comms;
    comms.reserve(found.size());
    for (auto &[address, comm] : found)
        comms.push_back(std::move(comm));
    return comms;
}

namespace {

struct RankReport {
    std::int32_t rank = -1;
    std::int32_t n_ranks = 0;
};
struct RankReportFields {
    std::uint32_t rank, n_ranks, address; // offsets
};

// If NCCL's struct extInfo may be here. Since 2.23 it also says which of how many roots it is for,
// before the address; until then a second address follows.
std::optional<RankReport> report_to_root(std::span<const std::byte> bytes,
                                         const RankReportFields &fields) {
    constexpr std::uint32_t ADDRESS_BYTES = 28, ROOT_AT = 8, N_ROOTS_AT = 12;
    const auto int_at = [&](std::uint32_t offset) {
        std::int32_t value = -1;
        if (offset + sizeof(value) <= bytes.size())
            std::memcpy(&value, &bytes[offset], sizeof(value));
        return value;
    };
    const auto is_address = [&](std::uint32_t offset) {
        constexpr std::uint16_t INET = 2, INET6 = 10;
        std::array<std::uint16_t, 2> family_and_port{};
        if (offset + sizeof(family_and_port) > bytes.size())
            return false;
        std::memcpy(&family_and_port, &bytes[offset], sizeof(family_and_port));
        return family_and_port[1] != 0 &&
               (family_and_port[0] == INET || family_and_port[0] == INET6);
    };
    const RankReport report{int_at(fields.rank), int_at(fields.n_ranks)};
    if (report.rank < 0 || report.n_ranks <= 1 || report.rank >= report.n_ranks ||
        report.n_ranks > MAX_RANKS || !is_address(fields.address))
        return std::nullopt;
    const bool has_root = fields.address != ADDRESS_BEFORE_2_23;
    if (has_root ? int_at(ROOT_AT) < 0 || int_at(ROOT_AT) >= int_at(N_ROOTS_AT)
                 : !is_address(fields.address + ADDRESS_BYTES))
        return std::nullopt;
    return report;
}

} // namespace

std::vector<BootstrapRoot> bootstrap_roots(const std::vector<Image> &images,
                                           const std::vector<UsedImage> &used,
                                           std::span<const CallFound> calls) {
    std::vector<BootstrapRoot> roots;
    for (const CallFound &call : calls) {
        if (!has_call(call.stack.inside, "bootstrapRoot"))
            continue;
        BootstrapRoot root;
        root.tid = call.tid;
        const nccl::LibraryLayout &layout = images[used[call.used].image].layout;
        const std::uint32_t rank = nccl::field_offset(layout, "extInfo.rank");
        const std::uint32_t n_ranks = nccl::field_offset(layout, "extInfo.nranks");
        const std::uint32_t address =
            nccl::field_offset(layout, "extInfo.listenRootAddress|extInfo.extAddressListenRoot");
        const bool is_known =
            rank != CW_NCCL_NO_FIELD && n_ranks != CW_NCCL_NO_FIELD && address != CW_NCCL_NO_FIELD;
        // What the last rank reported is on the root's stack, with an address of that rank.
        const auto bytes = std::as_bytes(std::span{call.words});
        for (std::size_t at = 0; is_known && root.n_ranks == 0 && at < bytes.size();
             at += sizeof(std::int32_t))
            if (const auto report = report_to_root(bytes.subspan(at), {rank, n_ranks, address})) {
                root.n_ranks = report->n_ranks;
                root.last_rank = report->rank;
            }
        roots.push_back(root);
    }
    return roots;
}

} // namespace collwire::inspect
