// SPDX-License-Identifier: Apache-2.0
// Every frame of rdma_rxe per queue pair (bpf/rxe_wire.bpf.c). docs/sources/rxe_wire.md
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "collwire/tables.h"
#include "userspace/loader/map_reader.h"
#include "userspace/sources/qp_source.h"

struct rxe_wire; // the skeleton of bpf/rxe_wire.bpf.c

namespace collwire::sources {

struct RxeWireOptions {
    bool filter_by_tgid = false;
    std::string layout_unknown; // of module_origin.h: why its modules must not be read
    loader::HookMode mode = loader::default_hook_mode();
    // Queue pairs with traffic at a time, those destroyed in the last two samples included;
    // 0: as many as fit in 64 MiB of per-CPU counters, at least 1,024 and at most 16,384.
    std::uint32_t max_qps = 0;
};

// Where this module keeps what we read: from its BTF, or, where kernels have no BTF for modules
// (before 5.11), as 5.10 has it, to be confirmed frame by frame.
Result<cw_rxe_layout> find_rxe_layout(loader::KernelBtf &btf);

class RxeWireSource : public ProbedSource<rxe_wire> {
public:
    RxeWireSource(const loader::SharedMaps &maps, RxeWireOptions options);
    ~RxeWireSource() override;

    void begin() override;
    void sample(source::RecordSink &sink, bool everything) override;
    [[nodiscard]] bool has_read_all() const override { return has_read_all_; }

private:
    struct PeerKeyHash {
        std::size_t operator()(const cw_ud_peer_key &key) const;
    };
    struct PeerKeyEqual {
        bool operator()(const cw_ud_peer_key &a, const cw_ud_peer_key &b) const;
    };
    [[nodiscard]] source::ProbeUse use() const override { return source::ProbeUse::Operations; }
    bool applicable() override;
    void choose(loader::KernelFunctions &functions, loader::HookMode mode) override;
    bool configure() override;
    Result<void> on_attached() override;
    [[nodiscard]] std::uint64_t missed() const override;
    void sample_counters(source::RecordSink &sink, bool everything);
    void sample_peers(source::RecordSink &sink, bool everything);
    void forget_destroyed();
    void check_layout();
    [[nodiscard]] std::uint64_t unseen() const;

    RxeWireOptions options_;
    std::optional<loader::MapReader> wire_reader_;
    std::optional<loader::MapReader> peers_reader_;
    QpMap<std::uint64_t> seen_; // frames of each queue pair when last appended
    std::unordered_map<cw_ud_peer_key, std::uint64_t, PeerKeyHash, PeerKeyEqual> seen_peers_;
    std::uint64_t tx_destructor_ = 0; // address of the kernel's function, 0: not known
    bool has_read_all_ = true;
    std::uint64_t calls_without_return_ = 0;
    std::uint64_t unseen_before_ = 0; // before anything was counted: no loss
    QpMap<bool> gone_;                // no longer live when last sampled: goes at the next sample
};

} // namespace collwire::sources
