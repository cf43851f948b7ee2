// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/proxy_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::inspect {
namespace {

constexpr std::uint64_t STEPS = 8;         // NCCL_STEPS
constexpr std::uint64_t SHARED_STEPS = 16; // NCCL_SHARED_STEPS
constexpr std::int32_t MAX_SUBS = 128;     // NCCL_PROXY_MAX_SUBS: 32 up to 2.24, 64 since
constexpr std::size_t MAX_OPERATIONS = 16384;
constexpr std::size_t MAX_READS = 500'000; // about 0.5 s
constexpr std::size_t MAX_BYTES = 128U << 20U;
constexpr std::size_t MAX_SUB_BYTES = 4096;
constexpr std::int64_t MAX_SLOT_BYTES = 4 << 20; // of LL and LL128: 600 KiB by default
constexpr std::int32_t IN_PROGRESS = 2;          // ncclProxyOpProgress
constexpr std::int32_t NOT_BEGUN = 1;            // ncclProxyOpReady
constexpr std::uint64_t NET_TRANSPORT = 2;
// Of connectMap: the upper three bits of an offset say which memory it is in, and that it is.
constexpr std::uint32_t MAP_BANK_SHIFT = 30, MAP_USED_SHIFT = 29, MAP_OFFSET_MASK = 0x1fffffff;
constexpr std::size_t LL_LINE_BYTES = 16;     // data, flag, data, flag: four bytes each
constexpr std::size_t LL128_LINE_BYTES = 128; // the last eight bytes are its flag

template <typename T> std::optional<T> part(std::span<const std::byte> bytes, std::uint32_t at) {
    if (at == CW_NCCL_NO_FIELD || at > bytes.size() || bytes.size() - at < sizeof(T))
        return std::nullopt;
    T value{};
    std::memcpy(&value, &bytes[at], sizeof(T));
    return value;
}

// The first that the layout has of "type.field|type.field"; null: it has none.
const nccl::FieldOffset *find_offset(const nccl::LibraryLayout &layout, std::string_view names) {
    for (;;) {
        const auto bar = names.find('|');
        const auto found = layout.offsets.find(std::string{names.substr(0, bar)});
        if (found != layout.offsets.end())
            return &found->second;
        if (bar == std::string_view::npos)
            return nullptr;
        names.remove_prefix(bar + 1);
    }
}

std::uint32_t narrowed(std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX - 1));
}

std::uint32_t size_bytes_of(const nccl::LibraryLayout &layout, std::string_view names) {
    const nccl::FieldOffset *found = find_offset(layout, names);
    return found == nullptr ? 0 : narrowed(found->size_bytes);
}

std::uint32_t elements_of(const nccl::LibraryLayout &layout, std::string_view names) {
    const nccl::FieldOffset *found = find_offset(layout, names);
    return found == nullptr ? 0 : narrowed(found->elements);
}

bool all_there(std::initializer_list<std::uint32_t> offsets) {
    return std::ranges::find(offsets, CW_NCCL_NO_FIELD) == offsets.end();
}

std::string named(std::string_view name) {
    return name == "unknown" ? std::string{} : std::string{name};
}

} // namespace

ProxyLayout::ProxyLayout(const nccl::LibraryLayout &layout) {
    const auto at = [&layout](std::string_view names) { return nccl::field_offset(layout, names); };
    const std::uint32_t progress_state = at("ncclProxyState.progressState");
    const std::uint32_t in_progress = at("ncclProxyProgressState.active");
    active =
        all_there({progress_state, in_progress}) ? progress_state + in_progress : CW_NCCL_NO_FIELD;
    const std::uint32_t thread = at("ncclProxyProgressState.thread");
    progress_thread =
        all_there({progress_state, thread}) ? progress_state + thread : CW_NCCL_NO_FIELD;
    state_tp_rank = at("ncclProxyState.tpRank");
    state_thread = at("ncclProxyState.thread");
    state_async_result = at("ncclProxyState.asyncResult");
    args_subs = at("ncclProxyArgs.subs");
    args_nsubs = at("ncclProxyArgs.nsubs");
    args_op_count = at("ncclProxyArgs.opCount");
    args_state = at("ncclProxyArgs.state");
    args_pattern = at("ncclProxyArgs.pattern");
    args_protocol = at("ncclProxyArgs.protocol");
    args_slice_steps = at("ncclProxyArgs.sliceSteps");
    args_dtype = at("ncclProxyArgs.dtype");
    args_red_op = at("ncclProxyArgs.redOp");
    args_coll = at("ncclProxyArgs.coll");
    args_coll_api = at("ncclProxyArgs.collAPI");
    args_algorithm = at("ncclProxyArgs.algorithm");
    args_next = at("ncclProxyArgs.next");
    args_next_peer = at("ncclProxyArgs.nextPeer");
    sub_size = at("ncclProxySubArgs");
    // A type by itself has its size as its value.
    sub_connection = at("ncclProxySubArgs.connection");
    sub_channel = at("ncclProxySubArgs.channelId");
    sub_nsteps = at("ncclProxySubArgs.nsteps");
    sub_nbytes = at("ncclProxySubArgs.nbytes");
    sub_loop_size = at("ncclProxySubArgs.loopSize");
    sub_reg = at("ncclProxySubArgs.reg");
    sub_base = at("ncclProxySubArgs.base");
    sub_posted = at("ncclProxySubArgs.posted");
    sub_received = at("ncclProxySubArgs.received");
    sub_transmitted = at("ncclProxySubArgs.transmitted");
    sub_done = at("ncclProxySubArgs.done");
    send_recv_mem = at("sendNetResources.recvMem|sendResources.recvMem");
    recv_send_mem = at("recvNetResources.sendMem|recvResources.sendMem");
    recv_recv_mem = at("recvNetResources.recvMem|recvResources.recvMem");
    send_buff_sizes = at("sendNetResources.buffSizes|sendResources.buffSizes");
    send_mems = at("sendNetResources.map.mems|sendResources.map.mems");
    send_buffs = at("sendNetResources.map.offsets.buffs|sendResources.map.offsets.buffs");
    mem_size = at("connectMapMem");
    mem_cpu_ptr = at("connectMapMem.cpuPtr");
    recv_mem_tail = at("ncclRecvMem.tail");
    recv_mem_fifo = at("ncclRecvMem.connFifo|ncclRecvMem.sizesFifo");
    fifo_element = at("ncclConnFifo");
    fifo_size = at("ncclConnFifo.size");
    fifo_size_bytes = size_bytes_of(layout, "ncclConnFifo.size");
    if (fifo_size == CW_NCCL_NO_FIELD && recv_mem_fifo != CW_NCCL_NO_FIELD) { // 2.18, 2.19: ints
        fifo_element = 4;
        fifo_size = 0;
        fifo_size_bytes = 4;
    }
    send_mem_head = at("ncclSendMem.head");
    constexpr std::string_view CREDITS = "ncclIbSendComm.ctsFifo|ncclIbSendComm.fifo";
    ib_credits = at(CREDITS);
    ib_credits_bytes = size_bytes_of(layout, CREDITS);
    ib_credit_rows = elements_of(layout, CREDITS);
    ib_credit_head = at("ncclIbNetCommBase.fifoHead|ncclIbSendComm.fifoHead");
    ib_credit_index = at("ncclIbSendFifo.idx");
}

bool ProxyLayout::is_usable() const {
    return all_there({active, args_subs, args_nsubs, args_op_count, args_state, args_pattern,
                      args_protocol, args_slice_steps, args_next, args_next_peer, sub_size,
                      sub_connection, sub_channel, sub_nsteps, sub_base, sub_posted, sub_received,
                      sub_transmitted, sub_done}) &&
           sub_size != 0 && sub_size <= MAX_SUB_BYTES;
}

ProxyReader::ProxyReader(const process::ProcessView &process, const nccl::LibraryLayout &layout,
                         const cw_nccl_layout &bpf_layout, std::uint64_t bias)
    : process_(process), bpf_layout_(bpf_layout), at_(layout), bias_(bias) {}

bool ProxyReader::bytes(std::uint64_t address, std::span<std::byte> into) {
    if (reads_ >= MAX_READS || into.size() > MAX_BYTES - bytes_read_) {
        is_cut_ = true;
        return false;
    }
    ++reads_;
    bytes_read_ += into.size();
    return process_.read(address, into);
}

template <typename T> std::optional<T> ProxyReader::value(std::uint64_t address) {
    T read{};
    return bytes(address, std::as_writable_bytes(std::span{&read, 1})) ? std::optional{read}
                                                                       : std::nullopt;
}

template <typename T>
std::optional<T> ProxyReader::field(std::uint64_t base, std::uint32_t offset) {
    return offset == CW_NCCL_NO_FIELD ? std::nullopt : value<T>(base + offset);
}

Proxy ProxyReader::read(std::uint64_t proxy_state, bool slots) {
    Proxy proxy;
    proxy.address = proxy_state;
    proxy.rank = field<std::int32_t>(proxy_state, at_.state_tp_rank).value_or(-1);
    if (const auto result = field<std::int32_t>(proxy_state, at_.state_async_result))
        proxy.async_result = capture::nccl_result_name(static_cast<std::uint64_t>(*result));
    if (!at_.is_usable())
        return proxy;
    net_ = field<std::uint64_t>(proxy_state, bpf_layout_.proxy_state_net).value_or(0);
    is_cut_ = false;
    // Along the list of active operations, and from each along those queued after it.
    std::set<std::uint64_t> seen;
    std::uint64_t head = field<std::uint64_t>(proxy_state, at_.active).value_or(0);
    while (head != 0 && seen.size() < MAX_OPERATIONS && seen.insert(head).second) {
        std::uint64_t address = head;
        bool is_first = true;
        while (address != 0) {
            if (auto operation = read_operation(address, slots && is_first)) {
                operation->is_queued = !is_first;
                proxy.operations.push_back(std::move(*operation));
            }
            is_first = false;
            address = field<std::uint64_t>(address, at_.args_next_peer).value_or(0);
            if (address != 0 && (seen.size() >= MAX_OPERATIONS || !seen.insert(address).second))
                break;
        }
        head = field<std::uint64_t>(head, at_.args_next).value_or(0);
    }
    proxy.is_cut = is_cut_ || seen.size() >= MAX_OPERATIONS;
    return proxy;
}

std::optional<Operation> ProxyReader::read_operation(std::uint64_t address, bool slots) {
    const auto n_subs = field<std::int32_t>(address, at_.args_nsubs);
    const auto state = field<std::int32_t>(address, at_.args_state);
    if (!n_subs || !state || *n_subs <= 0 || *n_subs > MAX_SUBS ||
        (*state != IN_PROGRESS && *state != NOT_BEGUN))
        return std::nullopt; // done, or nothing that it could be
    Operation operation;
    operation.address = address;
    operation.op_count = field<std::uint64_t>(address, at_.args_op_count).value_or(0);
    operation.is_begun = *state == IN_PROGRESS;
    const auto small = [&](std::uint32_t offset) {
        return field<std::uint8_t>(address, offset).value_or(0xff);
    };
    const std::uint8_t pattern = small(at_.args_pattern);
    if (pattern < CW_NCCL_PATTERN_NUMBERS)
        operation.pattern = capture::nccl_pattern_name(bpf_layout_.patterns[pattern]);
    operation.is_p2p = operation.pattern == "Send" || operation.pattern == "Recv";
    const std::uint8_t protocol = small(at_.args_protocol);
    operation.protocol = named(capture::nccl_protocol_name(protocol));
    const std::uint8_t api = small(at_.args_coll_api);
    operation.function = named(
        capture::nccl_func_name(operation.is_p2p && api != 0xff ? api : small(at_.args_coll)));
    if (operation.function.empty() && operation.is_p2p)
        operation.function = operation.pattern;
    if (!operation.is_p2p) { // those have none
        operation.algorithm = named(capture::nccl_algorithm_name(small(at_.args_algorithm)));
        operation.reduction = named(capture::nccl_reduction_name(small(at_.args_red_op)));
    }
    operation.datatype = named(capture::nccl_datatype_name(small(at_.args_dtype)));
    operation.slice_steps = static_cast<std::uint64_t>(
        std::max(field<std::int32_t>(address, at_.args_slice_steps).value_or(1), 1));
    for (std::int32_t i = 0; i < *n_subs; ++i)
        if (auto transfer = read_transfer(address + at_.args_subs +
                                              static_cast<std::uint64_t>(i) * at_.sub_size,
                                          operation, protocol, *n_subs, slots))
            operation.transfers.push_back(std::move(*transfer));
    return operation;
}

std::optional<Progress> ProxyReader::progress_of(std::span<const std::byte> sub) const {
    const auto posted = part<std::uint64_t>(sub, at_.sub_posted);
    const auto received = part<std::uint64_t>(sub, at_.sub_received);
    const auto transmitted = part<std::uint64_t>(sub, at_.sub_transmitted);
    const auto done = part<std::uint64_t>(sub, at_.sub_done);
    if (!posted || !received || !transmitted || !done)
        return std::nullopt;
    return Progress{*posted, *received, *transmitted, *done};
}

std::optional<Transfer> ProxyReader::read_transfer(std::uint64_t address,
                                                   const Operation &operation,
                                                   std::uint32_t protocol, std::int32_t n_subs,
                                                   bool slots) {
    std::vector<std::byte> sub(at_.sub_size);
    if (!bytes(address, sub))
        return std::nullopt;
    const auto connection = part<std::uint64_t>(sub, at_.sub_connection);
    const auto base = part<std::uint64_t>(sub, at_.sub_base);
    const auto n_steps = part<std::int32_t>(sub, at_.sub_nsteps);
    const auto progress = progress_of(sub);
    if (!connection || *connection == 0 || !base || !n_steps || *n_steps < 0 || !progress)
        return std::nullopt;
    Transfer transfer;
    transfer.connection = *connection;
    transfer.base = *base;
    transfer.channel = part<std::int32_t>(sub, at_.sub_channel).value_or(-1);
    transfer.nsteps = static_cast<std::uint64_t>(*n_steps);
    transfer.nbytes = part<std::int64_t>(sub, at_.sub_nbytes);
    transfer.loop_size = part<std::int64_t>(sub, at_.sub_loop_size);
    transfer.max_depth = std::min(STEPS, SHARED_STEPS / static_cast<std::uint64_t>(n_subs));
    // Before it has begun the counters are of whatever was there before.
    transfer.first = transfer.last = operation.is_begun ? *progress : Progress{};
    const auto send = field<std::int32_t>(*connection, bpf_layout_.connection_send);
    const auto resources = field<std::uint64_t>(*connection, bpf_layout_.connection_resources);
    const auto transport = field<std::int32_t>(*connection, bpf_layout_.connection_transport);
    if (!send || !transport)
        return transfer;
    transfer.is_send = *send != 0;
    if (static_cast<std::uint64_t>(*transport) != NET_TRANSPORT || !resources || *resources == 0)
        return transfer; // CollNet, SHM through the proxy: counters alone
    const auto pick = [&](std::uint32_t of_send, std::uint32_t of_receive) {
        return transfer.is_send ? of_send : of_receive;
    };
    transfer.rank =
        field<std::int32_t>(*resources, pick(bpf_layout_.send_tp_rank, bpf_layout_.recv_tp_rank))
            .value_or(-1);
    transfer.peer = field<std::int32_t>(*resources, pick(bpf_layout_.send_tp_remote_rank,
                                                         bpf_layout_.recv_tp_remote_rank))
                        .value_or(-1);
    transfer.conn_index = field<std::int32_t>(*resources, pick(bpf_layout_.send_conn_index,
                                                               bpf_layout_.recv_conn_index))
                              .value_or(-1);
    transfer.transport = net_ == bpf_layout_.net_ib + bias_       ? "NET/IB"
                         : net_ == bpf_layout_.net_socket + bias_ ? "NET/Socket"
                                                                  : "NET/plugin";
    if (!slots || !operation.is_begun)
        return transfer;
    if (transfer.is_send)
        read_sender(transfer, *resources, protocol, *base);
    else
        read_receiver(transfer, *resources, *base,
                      part<std::int32_t>(sub, at_.sub_reg).value_or(0) != 0);
    // What was read of the slot is of these counters only if they are still the same.
    if (bytes(address, sub))
        if (const auto after = progress_of(sub);
            after && part<std::uint64_t>(sub, at_.sub_base) == *base)
            transfer.last = *after;
    return transfer;
}

void ProxyReader::read_sender(Transfer &transfer, std::uint64_t resources, std::uint32_t protocol,
                              std::uint64_t base) {
    const auto memory = field<std::uint64_t>(resources, at_.send_recv_mem);
    if (!memory || *memory == 0 || at_.recv_mem_tail == CW_NCCL_NO_FIELD)
        return;
    const std::uint64_t step = base + transfer.last.transmitted;
    const auto tail = value<std::uint64_t>(*memory + at_.recv_mem_tail);
    const auto there = slot_bytes(*memory, step);
    if (!tail || !there)
        return;
    if (*there == -1 || (*tail <= step && protocol != CW_NCCL_LL))
        transfer.slot = Slot::Empty;
    else if (protocol == CW_NCCL_SIMPLE)
        transfer.slot = Slot::Filled;
    else
        transfer.slot = flags_of(resources, protocol, step, *there);
    if (transfer.transport == "NET/IB")
        if (const auto net_comm = field<std::uint64_t>(resources, bpf_layout_.send_net_comm))
            transfer.has_credit = credit_of(*net_comm);
}

// LL and LL128 put a flag next to the data, which the proxy waits for where the GPU could not
// order its writes: LL always, LL128 where the buffer is in the host's memory.
Slot ProxyReader::flags_of(std::uint64_t resources, std::uint32_t protocol, std::uint64_t step,
                           std::int64_t bytes_there) {
    if (protocol == CW_NCCL_LL128 &&
        field<std::int32_t>(resources, bpf_layout_.send_use_gdr).value_or(0) != 0)
        return Slot::Filled;
    if (bytes_there < 0 || bytes_there > MAX_SLOT_BYTES ||
        !all_there(
            {at_.send_mems, at_.send_buffs, at_.mem_size, at_.mem_cpu_ptr, at_.send_buff_sizes}) ||
        protocol > CW_NCCL_SIMPLE)
        return Slot::Unknown;
    const auto place = value<std::uint32_t>(resources + at_.send_buffs + protocol * 4U);
    const auto buffer_bytes = value<std::int32_t>(resources + at_.send_buff_sizes + protocol * 4U);
    if (!place || !buffer_bytes || *place >> MAP_USED_SHIFT == 0)
        return Slot::Unknown;
    const auto buffer = value<std::uint64_t>(
        resources + at_.send_mems + std::uint64_t{*place >> MAP_BANK_SHIFT} * at_.mem_size +
        at_.mem_cpu_ptr);
    if (!buffer || *buffer == 0)
        return Slot::Unknown;
    const std::size_t line = protocol == CW_NCCL_LL ? LL_LINE_BYTES : LL128_LINE_BYTES;
    const std::size_t n_lines = (static_cast<std::size_t>(bytes_there) + line - 1) / line;
    std::vector<std::byte> lines(n_lines * line);
    const std::uint64_t slot_bytes = static_cast<std::uint64_t>(std::max(*buffer_bytes, 0)) / STEPS;
    if (lines.size() > slot_bytes ||
        !bytes(*buffer + (*place & MAP_OFFSET_MASK) + (step % STEPS) * slot_bytes, lines))
        return Slot::Unknown;
    for (std::size_t i = 0; i < n_lines; ++i) {
        const std::span<const std::byte> one{&lines[i * line], line};
        const bool set =
            protocol == CW_NCCL_LL
                ? part<std::uint32_t>(one, 4) == static_cast<std::uint32_t>(step + 1) &&
                      part<std::uint32_t>(one, 12) == static_cast<std::uint32_t>(step + 1)
                : part<std::uint64_t>(one, LL128_LINE_BYTES - 8) == step + 1;
        if (!set)
            return Slot::Partial;
    }
    return Slot::Filled;
}

// A receiver writes where there is room into the sender's memory, with a number: one more than how
// many the sender has used up.
std::optional<bool> ProxyReader::credit_of(std::uint64_t net_comm) {
    if (!all_there({at_.ib_credits, at_.ib_credit_head, at_.ib_credit_index}) ||
        at_.ib_credit_rows == 0)
        return std::nullopt;
    const auto head = value<std::uint64_t>(net_comm + at_.ib_credit_head);
    if (!head)
        return std::nullopt;
    const std::uint64_t row = *head % at_.ib_credit_rows;
    const auto number = value<std::uint64_t>(net_comm + at_.ib_credits +
                                             row * (at_.ib_credits_bytes / at_.ib_credit_rows) +
                                             at_.ib_credit_index);
    if (!number)
        return std::nullopt;
    return *number == *head + 1;
}

// What is in the slot of a step: -1 where the kernel has given, or taken, nothing.
std::optional<std::int64_t> ProxyReader::slot_bytes(std::uint64_t recv_mem, std::uint64_t step) {
    if (!all_there({at_.recv_mem_fifo, at_.fifo_element, at_.fifo_size}))
        return std::nullopt;
    const std::uint64_t at = recv_mem + at_.recv_mem_fifo +
                             (step % STEPS) * std::uint64_t{at_.fifo_element} + at_.fifo_size;
    if (at_.fifo_size_bytes == 8)
        return value<std::int64_t>(at);
    return value<std::int32_t>(at);
}

void ProxyReader::read_receiver(Transfer &transfer, std::uint64_t resources, std::uint64_t base,
                                bool is_registered) {
    const auto send_mem = field<std::uint64_t>(resources, at_.recv_send_mem);
    if (send_mem && *send_mem != 0 && at_.send_mem_head != CW_NCCL_NO_FIELD)
        if (const auto head = value<std::uint64_t>(*send_mem + at_.send_mem_head))
            transfer.taken = *head > base ? *head - base : 0;
    const auto recv_mem = field<std::uint64_t>(resources, at_.recv_recv_mem);
    if (is_registered && transfer.last.posted == 0 && recv_mem && *recv_mem != 0)
        if (const auto there = slot_bytes(*recv_mem, base))
            transfer.is_kernel_there = *there != -1;
}

void merge_first_look(const Proxy &first, Proxy &second) {
    using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
    std::map<Key, const Transfer *> before;
    const auto key_of = [](const Operation &operation, const Transfer &transfer) {
        return Key{operation.address, operation.op_count, transfer.connection,
                   operation.is_begun ? transfer.base : 0};
    };
    for (const Operation &operation : first.operations)
        for (const Transfer &transfer : operation.transfers)
            before.emplace(key_of(operation, transfer), &transfer);
    for (Operation &operation : second.operations)
        for (Transfer &transfer : operation.transfers) {
            const auto found = before.find(key_of(operation, transfer));
            transfer.was_there = found != before.end();
            transfer.first = transfer.was_there ? found->second->last : Progress{};
        }
}

} // namespace collwire::inspect
