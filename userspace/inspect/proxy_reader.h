// SPDX-License-Identifier: Apache-2.0
// What NCCL's proxies have to do, out of the memory of their process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collwire/nccl_layout.h"
#include "correlate/inspect/inspection.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::inspect {

// Where the layout of a file says what of proxies is: CW_NCCL_NO_FIELD where it does not.
struct ProxyLayout {
    explicit ProxyLayout(const nccl::LibraryLayout &layout);
    // Enough for operations and their counters.
    [[nodiscard]] bool is_usable() const;

    std::uint32_t active, state_tp_rank, state_thread, progress_thread, state_async_result;
    std::uint32_t args_subs, args_nsubs, args_op_count, args_state, args_pattern, args_protocol,
        args_slice_steps, args_dtype, args_red_op, args_coll, args_coll_api, args_algorithm,
        args_next, args_next_peer;
    std::uint32_t sub_size, sub_connection, sub_channel, sub_nsteps, sub_nbytes, sub_loop_size,
        sub_reg, sub_base, sub_posted, sub_received, sub_transmitted, sub_done;
    std::uint32_t send_recv_mem, recv_send_mem, recv_recv_mem, send_buff_sizes, send_mems,
        send_buffs, mem_size, mem_cpu_ptr, recv_mem_tail, recv_mem_fifo, fifo_element, fifo_size,
        fifo_size_bytes, send_mem_head;
    std::uint32_t ib_credits, ib_credits_bytes, ib_credit_rows, ib_credit_head, ib_credit_index;
};

class ProxyReader {
public:
    ProxyReader(const process::ProcessView &process, const nccl::LibraryLayout &layout,
                const cw_nccl_layout &bpf_layout, std::uint64_t bias);

    // A proxy with its operations, `first` and `last` as they are now. `net_ib` etc. of the layout
    // say what network it is of. With `slots` also what the next step of each waits for.
    // Whatever the process has there, it is bounded in time and memory.
    [[nodiscard]] Proxy read(std::uint64_t proxy_state, bool slots);

private:
    template <typename T> std::optional<T> value(std::uint64_t address);
    template <typename T> std::optional<T> field(std::uint64_t base, std::uint32_t offset);
    bool bytes(std::uint64_t address, std::span<std::byte> into);
    std::optional<Operation> read_operation(std::uint64_t address, bool slots);
    std::optional<Transfer> read_transfer(std::uint64_t address, const Operation &operation,
                                          std::uint32_t protocol, std::int32_t n_subs, bool slots);
    void read_sender(Transfer &transfer, std::uint64_t resources, std::uint32_t protocol,
                     std::uint64_t base);
    void read_receiver(Transfer &transfer, std::uint64_t resources, std::uint64_t base,
                       bool is_registered);
    std::optional<std::int64_t> slot_bytes(std::uint64_t recv_mem, std::uint64_t step);
    Slot flags_of(std::uint64_t resources, std::uint32_t protocol, std::uint64_t step,
                  std::int64_t bytes_there);
    std::optional<bool> credit_of(std::uint64_t net_comm);
    [[nodiscard]] std::optional<Progress> progress_of(std::span<const std::byte> sub) const;

    const process::ProcessView &process_;
    const cw_nccl_layout &bpf_layout_;
    ProxyLayout at_;
    std::uint64_t bias_;
    std::uint64_t net_ = 0; // of the proxy that is read
    std::size_t reads_ = 0;
    std::size_t bytes_read_ = 0;
    bool is_cut_ = false;
};

// What was at the first look goes into what was at the second: `first` and `was_there`.
void merge_first_look(const Proxy &first, Proxy &second);

} // namespace collwire::inspect
