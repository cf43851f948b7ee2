// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h" // the skeleton names its types
#include "collwire/wire_records.h"

#include "rxe_wire.skel.h"

#include "userspace/sources/rxe_wire_source.h"

#include <algorithm>
#include <cstring>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "userspace/loader/twice.h"

namespace collwire::sources {
namespace {

// A hook of one program, at a function's entry.
loader::Hook entry(std::string function, unsigned parameters, std::string fentry,
                   std::string kprobe, std::string fentry_again) {
    return {.function = std::move(function),
            .parameters = parameters,
            .fentry = std::move(fentry),
            .fexit = {},
            .kprobe = std::move(kprobe),
            .kretprobe = {},
            .fentry_again = std::move(fentry_again)};
}

loader::Hook tracepoint(std::string name, std::string program) {
    loader::Hook hook;
    hook.function = std::move(name);
    hook.raw_tracepoint = std::move(program);
    return hook;
}

std::vector<loader::Hook> rxe_hooks() {
    return {
        // Received frames first, since they are placed in this order: the answer to a request that
        // was seen is seen, too, and one that passes unseen is no loss.
        entry("rxe_resp_queue_pkt", 2, "request_fentry", "request_kprobe", "request_fentry_again"),
        entry("rxe_comp_queue_pkt", 2, "response_fentry", "response_kprobe",
              "response_fentry_again"),
        // The kernel's own function that those two call.
        entry("skb_queue_tail", 2, "queue_fentry", {}, "queue_fentry_again"),
        tracepoint("net_dev_xmit", "netdev_done"),
        tracepoint("net_dev_start_xmit", "netdev_start"),
        {.function = "rxe_xmit_packet",
         .parameters = 3,
         .fentry = "xmit_fentry",
         .fexit = "xmit_fexit",
         .kprobe = "xmit_kprobe",
         .kretprobe = "xmit_kretprobe",
         .fentry_again = "xmit_fentry_again",
         .fexit_again = "xmit_fexit_again"},
        // Where that is inlined (until 5.14).
        {.function = "rxe_loopback",
         .parameters = 1,
         .fentry = {},
         .fexit = {},
         .kprobe = "loopback_kprobe",
         .kretprobe = "loopback_kretprobe"},
    };
}

// What must not be probed with what: each frame is counted once in each direction.
const std::vector<std::string_view> after_xmit = {"rxe_loopback"};
const std::vector<std::string_view> of_the_kernel = {"skb_queue_tail"};
const std::vector<std::string_view> of_rxe = {"rxe_resp_queue_pkt", "rxe_comp_queue_pkt"};
// All its frames on their way out point to it.
constexpr std::string_view tx_destructor = "rxe_skb_tx_dtor";

void add(cw_wire_direction &sum, const cw_wire_direction &cpu) {
    for (unsigned i = 0; i < CW_WIRE_CLASSES; ++i) {
        sum.frames[i] += cpu.frames[i];
        sum.wire_bytes[i] += cpu.wire_bytes[i];
        sum.payload_bytes[i] += cpu.payload_bytes[i];
    }
    if (cpu.first_ns != 0 && (sum.first_ns == 0 || cpu.first_ns < sum.first_ns)) {
        sum.first_ns = cpu.first_ns;
        sum.first_psn = cpu.first_psn;
        sum.first_opcode = cpu.first_opcode;
    }
    sum.last_ns = std::max(sum.last_ns, cpu.last_ns);
}

std::uint64_t frames(const cw_wire_counters &counters) {
    std::uint64_t total = counters.tx_failed_frames;
    for (unsigned i = 0; i < CW_WIRE_CLASSES; ++i)
        total += counters.tx.frames[i] + counters.rx.frames[i];
    return total;
}

std::uint32_t default_max_qps() {
    constexpr std::uint64_t budget_bytes = 64ull << 20;
    const auto n_cpus = static_cast<std::uint64_t>(std::max(1, libbpf_num_possible_cpus()));
    const auto fit = budget_bytes / (n_cpus * sizeof(cw_wire_counters));
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, 1024, 16384));
}

} // namespace

Result<cw_rxe_layout> find_rxe_layout(loader::KernelBtf &btf) {
    cw_rxe_layout layout = {};
    const auto of = [&btf](const char *type, const char *path) {
        const auto offset = btf.member_offset("rdma_rxe", type, path);
        return offset ? static_cast<std::int32_t>(*offset) : -1;
    };
    if (btf.of("rdma_rxe") != nullptr) {
        layout.qp_ibqp = of("rxe_qp", "ibqp");
        layout.qp_req_state = of("rxe_qp", "req.state");
        layout.qp_resp_state = of("rxe_qp", "resp.state");
        const bool own_states = layout.qp_req_state >= 0 && layout.qp_resp_state >= 0;
        layout.qp_attr_state = own_states ? -1 : of("rxe_qp", "attr.qp_state");
        layout.qp_resp_psn = of("rxe_qp", "resp.psn");
        layout.qp_comp_psn = of("rxe_qp", "comp.psn");
        layout.qp_req_pkts_len = of("rxe_qp", "req_pkts.qlen");
        layout.pkt_qp = of("rxe_pkt_info", "qp");
        layout.pkt_hdr = of("rxe_pkt_info", "hdr");
        layout.pkt_paylen = of("rxe_pkt_info", "paylen");
        layout.pkt_opcode = of("rxe_pkt_info", "opcode");
        layout.pkt_mask = of("rxe_pkt_info", "mask");
        layout.loopback_mask =
            btf.enumerator("rdma_rxe", "rxe_hdr_mask", "RXE_LOOPBACK_MASK").value_or(0);
        if (layout.qp_ibqp < 0 || layout.pkt_qp < 0 || layout.pkt_hdr < 0 ||
            layout.pkt_paylen < 0 || layout.pkt_opcode < 0 || layout.pkt_mask < 0 ||
            layout.loopback_mask == 0 || (!own_states && layout.qp_attr_state < 0))
            return error(ErrorKind::Unsupported,
                         "the BTF of rdma_rxe lacks fields that collwire reads");
        return layout;
    }
    if (loader::module_has_btf("ib_core"))
        return error(ErrorKind::Unsupported, "rdma_rxe has no BTF, other modules have it: its "
                                             "layout is unknown. Fix: load the in-tree rdma_rxe");
    // Linux 5.10, rxe_verbs.h and rxe_hdr.h: before ib_qp lies struct rxe_pool_entry { pool;
    // ref_cnt; list; node; index }, whose size no option changes. Frames are probed where only
    // those of ready queue pairs pass, so no state is read; those to the same node pass alone.
    return cw_rxe_layout{.qp_ibqp = 64,
                         .qp_req_state = -1,
                         .qp_resp_state = -1,
                         .qp_attr_state = -1,
                         .qp_resp_psn = -1,
                         .qp_comp_psn = -1,
                         .qp_req_pkts_len = -1,
                         .pkt_qp = 8,
                         .pkt_hdr = 24,
                         .pkt_paylen = 42,
                         .pkt_opcode = 45,
                         .pkt_mask = -1,
                         .loopback_mask = 0,
                         .tx_destructor = 0};
}

std::size_t RxeWireSource::PeerKeyHash::operator()(const cw_ud_peer_key &key) const {
    return std::hash<std::string_view>{}(
        std::string_view(reinterpret_cast<const char *>(&key), sizeof(key)));
}

bool RxeWireSource::PeerKeyEqual::operator()(const cw_ud_peer_key &a,
                                             const cw_ud_peer_key &b) const {
    return std::memcmp(&a, &b, sizeof(a)) == 0;
}

RxeWireSource::RxeWireSource(const loader::SharedMaps &maps, RxeWireOptions options)
    : ProbedSource(maps, "rxe_wire", rxe_hooks(), options.mode), options_(std::move(options)) {
    look_up(tx_destructor);
}

RxeWireSource::~RxeWireSource() = default;

bool RxeWireSource::applicable() {
    if (!loader::module_is_loaded("rdma_rxe"))
        return unusable(CW_SOURCE_UNAVAILABLE,
                        "no soft-RoCE on this node (rdma_rxe is not loaded)");
    if (!options_.layout_unknown.empty())
        return unusable(CW_SOURCE_REFUSED, options_.layout_unknown +
                                               ": packets are not counted. Fix: load the in-tree "
                                               "module, or rebuild that module with BTF");
    return true;
}

void RxeWireSource::choose(loader::KernelFunctions &functions, loader::HookMode mode) {
    const auto *destructor = functions.find(tx_destructor);
    tx_destructor_ = destructor == nullptr ? 0 : destructor->address;
    if (functions.find("rxe_xmit_packet") != nullptr) {
        functions.forget(after_xmit);
        functions.forget(of_the_kernel);
        return;
    }
    // fentry misses no call, a kprobe may: on the kernel's own function it works without BTF of
    // modules.
    const bool fentry = mode == loader::HookMode::FentryFirst &&
                        btf_->parameters("vmlinux", "skb_queue_tail").has_value();
    functions.forget(fentry ? of_rxe : of_the_kernel);
}

bool RxeWireSource::configure() {
    const auto layout = find_rxe_layout(*btf_);
    if (!layout)
        return unusable(CW_SOURCE_REFUSED, layout.failure().message);
    // The layout without BTF is that of kernels where sending has two ways out.
    const bool described = btf_->of("rdma_rxe") != nullptr;
    if (!described && hooks_.present("rxe_xmit_packet"))
        return unusable(CW_SOURCE_REFUSED,
                        "rdma_rxe has no BTF and is not the one of Linux 5.10. Fix: load an "
                        "rdma_rxe with BTF");
    if (tx_destructor_ == 0)
        return unusable(CW_SOURCE_UNAVAILABLE,
                        "/proc/kallsyms hides the address of rxe_skb_tx_dtor (rdma_rxe). Fix: run "
                        "as root, and set kernel.kptr_restrict to 0 or 1");
    if (!hooks_.present("skb_queue_tail") &&
        !(need("rxe_resp_queue_pkt") && need("rxe_comp_queue_pkt")))
        return false;
    if (!hooks_.present("rxe_xmit_packet") && !need("rxe_loopback"))
        return false;
    static_assert(sizeof(skeleton_->rodata->layout) == sizeof(cw_rxe_layout));
    std::memcpy(&skeleton_->rodata->layout, &*layout, sizeof(cw_rxe_layout));
    skeleton_->rodata->layout.tx_destructor = tx_destructor_;
    skeleton_->rodata->filter_by_tgid = options_.filter_by_tgid;
    const auto max_qps = options_.max_qps != 0 ? options_.max_qps : default_max_qps();
    bpf_map__set_max_entries(skeleton_->maps.wire, max_qps);
    bpf_map__set_max_entries(skeleton_->maps.wire_sequences, max_qps);
    bpf_map__set_max_entries(skeleton_->maps.ud_peers, max_qps);
    return true;
}

Result<void> RxeWireSource::on_attached() {
    wire_reader_.emplace(bpf_map__fd(skeleton_->maps.wire), sizeof(cw_qp_key),
                         sizeof(cw_wire_counters), true);
    peers_reader_.emplace(bpf_map__fd(skeleton_->maps.ud_peers), sizeof(cw_ud_peer_key),
                          sizeof(cw_ud_peer_counters), true);
    if (maps_.held() == CW_NOT_HELD)
        begin();
    return {};
}

void RxeWireSource::begin() {
    if (!wire_reader_)
        return;
    unseen_before_ = unseen();
    skeleton_->bss->complete_since_ns = monotonic_ns();
}

void RxeWireSource::check_layout() {
    if (skeleton_->bss->layout_mismatches == 0 || state_.state == CW_SOURCE_REFUSED)
        return;
    hooks_.detach();
    state_ = {CW_SOURCE_REFUSED, "packets of rdma_rxe do not match its layout: they are not "
                                 "counted. Fix: boot the kernel that the module was built for"};
}

void RxeWireSource::sample(source::RecordSink &sink, bool everything) {
    if (!wire_reader_)
        return;
    check_layout();
    if (state_.state == CW_SOURCE_REFUSED)
        return;
    sample_counters(sink, everything);
    sample_peers(sink, everything);
    forget_destroyed();
    const auto forget = [](const bpf_map *map) {
        return loader::forget_old_calls(bpf_map__fd(map), bpf_map__key_size(map),
                                        bpf_map__value_size(map));
    };
    calls_without_return_ += forget(skeleton_->maps.tx_calls);
    forget(skeleton_->maps.marks);
}

std::uint64_t RxeWireSource::unseen() const {
    auto n = hooks_.missed() + calls_without_return_;
    // Frames to other nodes pass the programs of the loopback, too, which do nothing with them.
    if (skeleton_.is_loaded())
        n += calls_unseen_by_both(hooks_, bpf_map__fd(skeleton_->maps.twice),
                                  skeleton_->bss->loopback_seen != 0);
    return n;
}

std::uint64_t RxeWireSource::missed() const {
    const auto now = unseen();
    return now - std::min(now, unseen_before_);
}

void RxeWireSource::sample_counters(source::RecordSink &sink, bool everything) {
    const auto now = monotonic_ns();
    // What is not seen now is with the next sample.
    has_read_all_ = wire_reader_->for_each(
        [&](std::span<const std::byte> key, std::span<const std::byte> values) {
            cw_qp_wire record = {};
            std::memcpy(&record.key, key.data(), sizeof(record.key));
            for (std::size_t at = 0; at < values.size(); at += wire_reader_->value_stride()) {
                cw_wire_counters cpu;
                std::memcpy(&cpu, values.data() + at, sizeof(cpu));
                add(record.counters.tx, cpu.tx);
                add(record.counters.rx, cpu.rx);
                record.counters.tx_failed_frames += cpu.tx_failed_frames;
            }
            auto &seen = seen_[record.key];
            const auto total = frames(record.counters);
            if (total == seen && !everything)
                return;
            seen = total;
            record.header = {sizeof(record), CW_KIND_QP_WIRE, CW_CPU_USERSPACE, now};
            sink.append(record.header);
        });
}

void RxeWireSource::sample_peers(source::RecordSink &sink, bool everything) {
    const auto now = monotonic_ns();
    (void)peers_reader_->for_each(
        [&](std::span<const std::byte> key, std::span<const std::byte> values) {
            cw_ud_peer_key peer;
            std::memcpy(&peer, key.data(), sizeof(peer));
            cw_ud_peer record = {};
            record.key = peer.qp;
            std::memcpy(record.dgid, peer.dgid, sizeof(record.dgid));
            record.dest_qpn = peer.dest_qpn;
            for (std::size_t at = 0; at < values.size(); at += peers_reader_->value_stride()) {
                cw_ud_peer_counters cpu;
                std::memcpy(&cpu, values.data() + at, sizeof(cpu));
                record.tx_frames += cpu.frames;
                record.tx_wire_bytes += cpu.wire_bytes;
                record.tx_payload_bytes += cpu.payload_bytes;
            }
            auto &seen = seen_peers_[peer];
            if (record.tx_frames == seen && !everything)
                return;
            seen = record.tx_frames;
            record.header = {sizeof(record), CW_KIND_UD_PEER, CW_CPU_USERSPACE, now};
            sink.append(record.header);
        });
}

// Counters of a queue pair stay for one whole sample after it is gone: the frame that was on its
// way when it was destroyed has been counted by then, and this sample has read it.
void RxeWireSource::forget_destroyed() {
    const auto living = maps_.live_qps();
    if (!living)
        return;
    QpMap<bool> live;
    for (const cw_live_qp &qp : *living)
        live.emplace(qp.key, true);
    const int wire = bpf_map__fd(skeleton_->maps.wire);
    const int sequences = bpf_map__fd(skeleton_->maps.wire_sequences);
    const int peers = bpf_map__fd(skeleton_->maps.ud_peers);
    QpMap<bool> gone;
    for (auto entry = seen_.begin(); entry != seen_.end();) {
        const auto &key = entry->first;
        if (live.contains(key)) {
            ++entry;
            continue;
        }
        if (!gone_.contains(key)) {
            gone.emplace(key, true);
            ++entry;
            continue;
        }
        (void)bpf_map_delete_elem(wire, &key);
        (void)bpf_map_delete_elem(sequences, &key);
        std::erase_if(seen_peers_, [&](const auto &peer) {
            if (!QpKeyEqual{}(peer.first.qp, key))
                return false;
            (void)bpf_map_delete_elem(peers, &peer.first);
            return true;
        });
        entry = seen_.erase(entry);
    }
    gone_ = std::move(gone);
}

} // namespace collwire::sources
