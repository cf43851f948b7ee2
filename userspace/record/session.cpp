// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/session.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/module_origin.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/loader/unread_records.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/process/guest_library.h"
#include "userspace/record/machine.h"
#include "userspace/sources/counters_source.h"
#include "userspace/sources/gpu_source.h"
#include "userspace/sources/inventory_source.h"
#include "userspace/sources/mappings_source.h"
#include "userspace/sources/mlx5_source.h"
#include "userspace/sources/nccl/source.h"
#include "userspace/sources/nvlink_source.h"
#include "userspace/sources/port_event_source.h"
#include "userspace/sources/posts_source.h"
#include "userspace/sources/qp_source.h"
#include "userspace/sources/rxe_wire_source.h"
#include "userspace/sources/socket_end_source.h"
#include "userspace/sources/socket_source.h"
#include "userspace/sources/verbs_qp_source.h"
#include "userspace/sources/xid_source.h"

namespace collwire::record {
namespace {

// A segment of the smallest --max fills up within this many records of the ring buffer.
constexpr std::size_t CONSUME_RECORDS = 512;
constexpr std::chrono::milliseconds CONSUME_TIME{100};
constexpr std::uint64_t LAST_EVENTS_NS = 1'000'000'000;
// Without NCCL no other file than the guest library's is of interest.
constexpr std::uint64_t NO_FILE_BYTES = ~std::uint64_t{0};
constexpr std::chrono::milliseconds UNREAD_AGAIN{5};
constexpr std::uint64_t LEAST_NVLINK_NS = 100'000'000;

} // namespace

Result<void> RecordSession::prepare(const RecordOptions &options) {
    options_ = options;
    const auto what = options.counters_only                         ? Recording::CountersOnly
                      : options.nccl || options.gpu != GpuMode::Off ? Recording::NcclToo
                                                                    : Recording::QueuePairs;
    if (auto checked = check_machine(what); !checked)
        return checked;
    sources::InventoryOptions inventory;
    inventory.processes.full_cmdline = options.full_cmdline;
    sources::CountersOptions counters;
    counters.interval_ns = options.interval_ns;
    auto devices = std::make_unique<sources::InventorySource>(std::move(inventory));
    inventory_ = devices.get();
    if (auto added = add(std::move(devices)); !added)
        return added;
    // Before any program is loaded: the process that runs NVML then has none of their descriptors.
    if (auto added = add_nvidia_sources(options); !added)
        return added;
    if (!options.counters_only) {
        if (auto prepared = prepare_kernel_sources(options); !prepared)
            return prepared;
    }
    return add(std::make_unique<sources::CountersSource>(std::move(counters)));
}

Result<void> RecordSession::add(std::unique_ptr<source::Source> source) {
    sources_.push_back(std::move(source));
    source::Source &added = *sources_.back();
    if (auto prepared = added.prepare(); !prepared)
        return std::move(prepared).failure().in(added.name());
    return {};
}

Result<void> RecordSession::add_nvidia_sources(const RecordOptions &options) {
    if (!options.nvlink)
        return {};
    sources::NvlinkOptions nvlink_options;
    nvlink_options.interval_ns = std::max(options.interval_ns, LEAST_NVLINK_NS);
    auto nvlink = std::make_unique<sources::NvlinkSource>(std::move(nvlink_options));
    const sources::NvlinkSource &added_nvlink = *nvlink;
    if (auto added = add(std::move(nvlink)); !added)
        return added;
    return added_nvlink.has_nvidia()
               ? add(std::make_unique<sources::XidSource>(sources::XidOptions{}))
               : Result<void>{};
}

Result<void> RecordSession::prepare_kernel_sources(const RecordOptions &options) {
    loader::SharedMapOptions map_options;
    map_options.ring_bytes = options.ring_bytes;
    auto maps = loader::SharedMaps::create(map_options);
    if (!maps)
        return std::move(maps).failure();
    maps_ = std::move(maps).value();
    if (auto held = maps_->hold(CW_HELD); !held)
        return held;
    for (const std::uint32_t pid : options.pids) {
        if (auto wanted = maps_->want_tgid(pid); !wanted)
            return wanted;
    }
    auto ring = loader::EventRing::create(*maps_, [this](const cw_header &record) {
        if (callback_)
            callback_(record);
        // A library that is mapped now gets no probes any more.
        if (is_ending_ && record.kind == CW_KIND_FILE_MAPPED)
            return;
        for (const auto &source : sources_)
            source->on_record(record);
    });
    if (!ring)
        return std::move(ring).failure();
    ring_ = std::move(ring).value();
    ring_->keep_empty(); // a source may be held up by what it reads, or by what it loads

    return add_kernel_sources(options);
}

// In this order: `qp` fills the table of live queue pairs that the others read.
Result<void> RecordSession::add_kernel_sources(const RecordOptions &options) {
    const loader::HookMode mode =
        options.force_kprobes ? loader::HookMode::KprobeOnly : loader::default_hook_mode();
    const bool filter = !options.pids.empty();
    if (!inventory::rdma_device_names("").empty())
        if (auto added = add_rdma_sources(options, mode, filter); !added)
            return added;
    const bool gpu = options.gpu != GpuMode::Off;
    if (!options.nccl && !gpu && verbs_ == nullptr)
        return {};
    auto mappings = std::make_unique<sources::MappingsSource>(
        *maps_, options.nccl ? nccl::LEAST_FILE_BYTES : NO_FILE_BYTES, filter, mode, gpu,
        verbs_ != nullptr);
    const auto rearm = [mappings_source = mappings.get()](const std::set<std::uint64_t> &inodes) {
        mappings_source->emit_again(inodes);
    };
    rearm_mappings_ = rearm;
    mappings_ = mappings.get();
    if (auto added = add(std::move(mappings)); !added)
        return added;
    if (options.nccl)
        if (auto added = add_nccl_sources(options, rearm); !added)
            return added;
    return gpu ? add_gpu_source(options, rearm) : Result<void>{};
}

bool RecordSession::sees_mappings() const {
    return works("mappings") && !mappings_->missed_lately();
}

// Last, and armed when the gate is open: the guest libraries start when all else is in place.
Result<void>
RecordSession::add_gpu_source(const RecordOptions &options,
                              std::function<void(const std::set<std::uint64_t> &)> rearm) {
    sources::GpuOptions gpu;
    gpu.times.mode = options.gpu == GpuMode::Always   ? sources::GpuTraceMode::Always
                     : options.gpu == GpuMode::Slices ? sources::GpuTraceMode::Slices
                                                      : sources::GpuTraceMode::OnTrigger;
    gpu.times.on_ns = options.gpu_on_ns;
    gpu.times.period_ns = options.gpu_period_ns;
    gpu.pids = options.pids;
    gpu.installed = process::installed_guest_libraries();
    gpu.has_mapping_records = [this] { return sees_mappings(); };
    gpu.rearm_mappings = std::move(rearm);
    return add(std::make_unique<sources::GpuSource>(*maps_, std::move(gpu)));
}

Result<void>
RecordSession::add_nccl_sources(const RecordOptions &options,
                                std::function<void(const std::set<std::uint64_t> &)> rearm) {
    if (auto added = add(std::make_unique<sources::SocketEndSource>(*maps_)); !added)
        return added;
    sources::NcclOptions nccl;
    nccl.rearm_mappings = std::move(rearm);
    nccl.probes.pids = options.pids;
    nccl.files = options.nccl_files;
    nccl.probes.symbols = options.symbols;
    nccl.probes.api_returns = options.api_returns;
    // A kernel of a launch that is not recorded would take another one's place in the order.
    nccl.probes.local_launches = options.local_launches || options.gpu != GpuMode::Off;
    nccl.probes.network_times = options.network_times;
    nccl.probes.warnings = options.warnings;
    nccl.on_error = look_at_qps_;
    if (options.gpu == GpuMode::OnStall) {
        nccl.on_stall = [this] { on_request(); };
        nccl.stall_ns = options.gpu_stall_ns;
    }
    nccl.has_mapping_records = [this] { return sees_mappings(); };
    sources::SocketOptions sockets_options;
    sockets_options.interval_ns = options.interval_ns;
    sockets_options.has_end_records = [this] { return works("socket_ends"); };
    auto sockets = std::make_unique<sources::SocketSource>(std::move(sockets_options));
    nccl.on_discovered_comm = [to = inventory_](const cw_header &record) { to->on_record(record); };
    nccl.on_connection = [to = sockets.get()](const cw_header &record) { to->on_record(record); };
    if (qps_from_verbs_) {
        nccl.lacks_queue_pair_paths = [of = verbs_](std::uint32_t tgid) {
            return of->lacks_paths(tgid);
        };
        nccl.on_queue_pair_path = [to = verbs_](const source::QueuePairPath &path) {
            to->take_path(path);
        };
    }
    auto nccl_source = std::make_unique<sources::NcclSource>(*maps_, std::move(nccl));
    nccl_ = nccl_source.get();
    if (auto added = add(std::move(nccl_source)); !added)
        return added;
    return add(std::move(sockets));
}

Result<void> RecordSession::add_qp_sources(const RecordOptions &options, loader::HookMode mode,
                                           bool filter) {
    sources::QpSourceOptions qp;
    qp.filter_by_tgid = filter;
    qp.layout_unknown = inventory::layout_unknown("", {"ib_core"});
    qp.mode = mode;
    qp.has_other_source = options.qp_source == QpSourceMode::Auto;
    if (options.qp_source == QpSourceMode::Verbs)
        qp.off = "--qp-source=verbs: queue pairs are read from libibverbs";
    auto qps = std::make_unique<sources::QpSource>(*maps_, std::move(qp));
    look_at_qps_ = [of = qps.get()] { of->look_for_errors(); };
    if (auto added = add(std::move(qps)); !added)
        return added;
    const bool has_kernel = works("qp");
    if (options.qp_source == QpSourceMode::Kernel ||
        (options.qp_source == QpSourceMode::Auto && has_kernel))
        return {};
    qps_from_verbs_ = options.qp_source != QpSourceMode::Both || !has_kernel;
    return add_verbs(options);
}

Result<void> RecordSession::add_verbs(const RecordOptions &options) {
    sources::VerbsQpOptions verbs;
    verbs.pids = options.pids;
    verbs.compare_only = !qps_from_verbs_;
    verbs.devices = [this]() -> const std::vector<inventory::RdmaDevice> & {
        return inventory_->devices();
    };
    verbs.emit = [this](const cw_header &record) {
        for (const auto &source : sources_)
            if (source->name() != "verbs")
                source->on_record(record);
    };
    verbs.has_mapping_records = [this] { return sees_mappings(); };
    verbs.rearm_mappings = [this](const std::set<std::uint64_t> &inodes) {
        if (rearm_mappings_)
            rearm_mappings_(inodes);
    };
    auto source = std::make_unique<sources::VerbsQpSource>(*maps_, std::move(verbs));
    verbs_ = source.get();
    if (qps_from_verbs_)
        look_at_qps_ = [of = source.get()] { of->look_for_errors(); };
    return add(std::move(source));
}

Result<void> RecordSession::add_rdma_sources(const RecordOptions &options, loader::HookMode mode,
                                             bool filter) {
    if (auto added = add_qp_sources(options, mode, filter); !added)
        return added;

    std::string frames_unknown = inventory::layout_unknown("", {"rdma_rxe", "ib_core"});
    // Without ib_core's queue pairs it would discover each one a second time.
    const bool can_count_frames = !qps_from_verbs_ || !frames_unknown.empty();
    if (options.wire && can_count_frames && inventory::module_origin("", "rdma_rxe").present) {
        sources::RxeWireOptions wire;
        wire.filter_by_tgid = filter;
        wire.layout_unknown = std::move(frames_unknown);
        wire.mode = mode;
        if (auto added = add(std::make_unique<sources::RxeWireSource>(*maps_, std::move(wire)));
            !added)
            return added;
    }
    auto ports = std::make_unique<sources::PortEventSource>(
        *maps_, inventory::layout_unknown("", {"ib_core"}), mode);
    if (auto added = add(std::move(ports)); !added)
        return added;
    if (inventory::module_origin("", "mlx5_core").present) {
        sources::Mlx5SourceOptions devx;
        devx.filter_by_tgid = filter;
        devx.layout_unknown =
            inventory::layout_unknown("", {"mlx5_core", "mlx5_ib", "ib_uverbs", "ib_core"});
        devx.mode = mode;
        if (auto added = add(std::make_unique<sources::Mlx5Source>(*maps_, std::move(devx)));
            !added)
            return added;
    }
    return options.posts == PostsMode::Off ? Result<void>{} : add_posts(options);
}

// Last: posts are counted only if frames are not.
Result<void> RecordSession::add_posts(const RecordOptions &options) {
    return add(make_posts(options));
}

std::unique_ptr<source::Source> RecordSession::make_posts(const RecordOptions &options) const {
    const bool counts_frames = works("rxe_wire");
    sources::PostsOptions posts;
    posts.forced = options.posts == PostsMode::On;
    posts.filter_by_tgid = !options.pids.empty();
    if (!posts.forced && options.nccl) {
        posts.slices = {options.posts_on_ns, options.posts_period_ns};
        posts.nccl_queue_pairs = [this](std::uint32_t tgid) {
            return nccl_ == nullptr ? nullptr : nccl_->queue_pairs_of(tgid);
        };
    }
    for (const inventory::RdmaDevice &device :
         scan_rdma_devices("", inventory::read_netlink_facts(), inventory::GidTables::Skip)) {
        const std::string driver = device.record.driver;
        posts.devices.push_back(
            {device.record.name, driver, counts_frames && driver == "rdma_rxe"});
    }
    return std::make_unique<sources::PostsSource>(*maps_, std::move(posts));
}

bool RecordSession::works(std::string_view name) const {
    const auto source =
        std::ranges::find_if(sources_, [name](const auto &each) { return each->name() == name; });
    return source != sources_.end() &&
           std::ranges::all_of((*source)->states(), [](const source::SourceState &state) {
               return state.state < CW_SOURCE_UNAVAILABLE;
           });
}

Result<void> RecordSession::attach(const std::function<void()> &is_attached) {
    const bool counted_frames = works("rxe_wire");
    for (auto &source : sources_) {
        if (source->name() == "posts" && counted_frames && !works("rxe_wire")) {
            source = make_posts(options_);
            if (auto prepared = source->prepare(); !prepared)
                return std::move(prepared).failure().in(source->name());
        }
        if (auto attached = source->attach(); !attached)
            return std::move(attached).failure().in(source->name());
        if (is_attached)
            is_attached();
    }
    return {};
}

Result<std::uint64_t> RecordSession::begin() {
    for (const auto &source : sources_)
        source->baseline();
    const std::uint64_t since_ns = monotonic_ns();
    if (maps_)
        if (auto begun = maps_->hold(CW_NOT_HELD); !begun)
            return std::move(begun).failure();
    for (const auto &source : sources_)
        source->begin();
    return since_ns;
}

void RecordSession::consume_last() {
    if (!ring_)
        return;
    // A program that was running when its probe was removed may take a moment more.
    const std::uint64_t since_ns = monotonic_ns();
    do {
        static_cast<void>(ring_->consume());
        // Where it is not known there may be one.
        unread_records_ = loader::unread_records(maps_->events_fd()).value_or(1) +
                          loader::unread_records(maps_->bulk_events_fd()).value_or(1);
        if (unread_records_ != 0)
            std::this_thread::sleep_for(UNREAD_AGAIN);
    } while (unread_records_ != 0 && monotonic_ns() - since_ns < LAST_EVENTS_NS);
}

bool RecordSession::consume_some() {
    if (!ring_)
        return false;
    const auto more = ring_->consume_some(CONSUME_RECORDS, CONSUME_TIME);
    return more && *more;
}

std::uint64_t RecordSession::due_ns() const {
    std::uint64_t first_ns = 0;
    for (const auto &source : sources_)
        if (const std::uint64_t due_ns = source->due_ns();
            due_ns != 0 && (first_ns == 0 || due_ns < first_ns))
            first_ns = due_ns;
    return first_ns;
}

std::uint64_t RecordSession::take_standstill_ns() {
    if (!ring_)
        return 0;
    const auto now = ring_->standstills();
    return std::exchange(n_standstills_, now.n) == now.n ? 0 : now.last_ns;
}

void RecordSession::on_due() {
    for (const auto &source : sources_)
        source->on_due();
}

void RecordSession::on_request() {
    for (const auto &source : sources_)
        source->on_request();
}

bool RecordSession::finish() {
    bool finished = true;
    for (const auto &source : sources_)
        finished = source->finish() && finished;
    return finished;
}

// While probes are detached one after the other, counts would be incomplete.
std::uint64_t RecordSession::end() {
    is_ending_ = true;
    // Connections have counters to read for operations still in flight.
    for (const std::uint64_t since_ns = monotonic_ns();
         consume_some() && monotonic_ns() - since_ns < LAST_EVENTS_NS;)
        ;
    for (const auto &source : sources_)
        source->end();
    if (maps_)
        static_cast<void>(maps_->hold(CW_OVER));
    return monotonic_ns();
}

// In reverse order: sources that count per queue pair detach before `qp`, which distinguishes one
// life of a number from the next.
void RecordSession::detach() {
    for (auto source = sources_.rbegin(); source != sources_.rend(); ++source) {
        (*source)->detach();
        consume_some(); // it may take long, and the ring fills
    }
}

std::vector<source::LossCount> RecordSession::losses() const {
    std::vector<source::LossCount> all;
    if (maps_)
        all = maps_->losses();
    if (ring_ && ring_->standstills().n != 0)
        all.push_back({CW_LOSS_STANDSTILL, CW_CPU_USERSPACE, ring_->standstills().n});
    if (unread_records_ != 0)
        all.push_back({CW_LOSS_RING_UNREAD, CW_CPU_USERSPACE, unread_records_});
    for (const auto &source : sources_) {
        const auto own = source->losses();
        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

std::uint32_t RecordSession::node_flags() const {
    std::uint32_t flags = 0;
    for (const auto &source : sources_) {
        for (const source::SourceState &state : source->states()) {
            if (state.state != CW_SOURCE_ON && state.state != CW_SOURCE_DEGRADED)
                continue;
            if (source->name() == "rxe_wire")
                flags |= CW_NODE_WIRE;
            if (source->name() == "posts")
                flags |= CW_NODE_POSTS;
            if (source->name() == "nccl")
                flags |= CW_NODE_NCCL;
            if (source->name() == "sockets")
                flags |= CW_NODE_SOCKETS;
            if (source->name() == "gpu")
                flags |= CW_NODE_GPU;
        }
    }
    return flags;
}

} // namespace collwire::record
