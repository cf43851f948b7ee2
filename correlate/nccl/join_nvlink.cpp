// SPDX-License-Identifier: Apache-2.0
// NVLink: sums of each GPU's counters, the driver's errors of all hosts in one order, and where
// their failures began, with the operations of that time.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "correlate/nccl/local_traffic.h"
#include "correlate/nccl/nvlink_facts.h"
#include "correlate/nccl/nvlink_text.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;

namespace {

// In a published failure of NVLink 5, the errors of all peers and of their channels came within
// 0.5 s; CUDA processes may be ended some seconds later.
constexpr std::uint64_t APART_NS = 60'000'000'000;
// An operation without a recorded end is taken to have moved its bytes so long after its launch.
constexpr std::uint64_t SETTLE_NS = 500'000'000;
// A kernel that hangs moves nothing for most of its time.
constexpr std::uint64_t LONGEST_NS = 600'000'000'000;
// Of a capture that no recorder wrote: each is searched for in all operations.
constexpr std::size_t MAX_FAILURES = 1000;

using GpuKey = std::pair<Index, std::uint64_t>; // host, bus id

class NvlinkJoiner {
public:
    explicit NvlinkJoiner(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        for (Index i = 0; i < nccl_.gathered.nvlink_gpus.size(); ++i)
            if (!model_.sessions[nccl_.gathered.nvlink_gpus[i].session].excluded)
                add_gpu(i);
        std::ranges::stable_sort(nccl_.nvlink.gpus, {}, [this](const NvlinkGpu &gpu) {
            return std::tuple(model_.hosts[gpu.host].name, gpu.host,
                              nccl_.gathered.nvlink_gpus[gpu.gathered].record.bus_id);
        });
        add_errors();
        find_failures();
    }

private:
    void add_gpu(Index gathered) {
        const GatheredNvlink &from = nccl_.gathered.nvlink_gpus[gathered];
        NvlinkGpu gpu;
        gpu.gathered = gathered;
        gpu.host = model_.sessions[from.session].host;
        for (const gpu::NvlinkReading &reading : from.history.readings()) {
            gpu.measured_tx_bytes = add_saturating(gpu.measured_tx_bytes, reading.tx_bytes);
            gpu.measured_rx_bytes = add_saturating(gpu.measured_rx_bytes, reading.rx_bytes);
            gpu.is_lower_bound = gpu.is_lower_bound || reading.is_lower_bound;
        }
        gpu.unmeasured_ns = unmeasured_ns(from);
        reconcile(from, gpu);
        nccl_.nvlink.gpus.push_back(std::move(gpu));
    }

    // Operations of all communicators on the GPU that use P2P, launch by launch.
    void reconcile(const GatheredNvlink &from, NvlinkGpu &into) const {
        std::vector<gpu::ModelledTransfer> transfers;
        std::vector<std::uint64_t> not_modelled_ns; // launches whose bytes are not all known
        bool is_modelled = false;
        for (Index index = 0; index < nccl_.instances.size(); ++index) {
            const Instance &instance = nccl_.instances[index];
            if (instance.session != from.session || instance.record.bus_id != from.record.bus_id)
                continue;
            const auto &launches = nccl_.gathered.streams[instance.stream].launches;
            for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
                const std::uint32_t launch = instance.first_launch + i;
                const std::vector<LocalTask> *tasks = local_tasks(model_, index, launch);
                if (tasks == nullptr)
                    continue;
                is_modelled = true;
                gpu::ModelledTransfer transfer;
                transfer.begin_ns = launches[launch].time_ns;
                transfer.end_ns = end_of(instance.stream, launch, transfer.begin_ns);
                if (!add_tasks(*tasks, instance.record.rank, transfer))
                    not_modelled_ns.push_back(transfer.begin_ns);
                if (transfer.tx_bytes != 0 || transfer.rx_bytes != 0)
                    transfers.push_back(transfer);
            }
        }
        const auto &source = from.history.byte_source();
        if (!is_modelled || !source)
            return;
        // Each counter may lag by less than its unit, at both edges.
        const std::uint64_t counters = source->is_sum_of_links ? from.record.links : 1;
        into.windows = gpu::reconcile_nvlink(from.history.readings(), transfers,
                                             {.step_bytes = counters * source->unit_bytes});
        for (const std::uint64_t time_ns : not_modelled_ns)
            for (gpu::NvlinkWindow &window : *into.windows)
                if (time_ns < window.end_ns && add_saturating(time_ns, SETTLE_NS) > window.begin_ns)
                    window.is_modelled_lower_bound = true;
    }

    // False: the bytes of a task, or the transport of one, are not known.
    static bool add_tasks(const std::vector<LocalTask> &tasks, std::int32_t rank,
                          gpu::ModelledTransfer &transfer) {
        bool is_known = true;
        for (const LocalTask &task : tasks) {
            is_known = is_known && task.reason == NotModelled::No;
            for (const LocalSend &send : task.edges) {
                is_known = is_known && send.transport != LocalTransport::Unknown;
                if (send.transport != LocalTransport::P2p &&
                    send.transport != LocalTransport::Nvlink &&
                    send.transport != LocalTransport::Nvls)
                    continue;
                std::uint64_t &bytes =
                    send.edge.sender == rank ? transfer.tx_bytes : transfer.rx_bytes;
                bytes = add_saturating(bytes, send.edge.payload_bytes);
            }
        }
        return is_known;
    }

    // By its kernel, if that was traced. Kernels are queued behind others, so without it the end is
    // a guess.
    [[nodiscard]] std::uint64_t end_of(Index stream, std::uint32_t launch,
                                       std::uint64_t launched_ns) const {
        const auto &kernels = nccl_.gpu.kernel_of_launch;
        if (stream < kernels.size() && launch < kernels[stream].size())
            if (const auto &[process, kernel] = kernels[stream][launch]; process != NONE)
                if (const std::uint64_t end_ns =
                        nccl_.gathered.gpu_processes[process].kernels[kernel].end_ns;
                    end_ns > launched_ns)
                    return std::min(end_ns, add_saturating(launched_ns, LONGEST_NS));
        return add_saturating(launched_ns, SETTLE_NS);
    }

    // From the start of a reading that was given up to the next one that came back.
    [[nodiscard]] std::uint64_t unmeasured_ns(const GatheredNvlink &of) const {
        const auto &readings = of.history.readings();
        std::uint64_t sum_ns = 0, until_ns = 0;
        for (const cw_nvlink_gap &gap : of.gaps) {
            const auto next = std::ranges::upper_bound(readings, gap.header.time_ns, {},
                                                       &gpu::NvlinkReading::time_ns);
            const std::uint64_t end_ns =
                next != readings.end() ? next->time_ns : model_.sessions[of.session].end_ns;
            const std::uint64_t begin_ns = std::max<std::uint64_t>(gap.begin_ns, until_ns);
            if (end_ns > begin_ns)
                sum_ns = add_saturating(sum_ns, end_ns - begin_ns);
            until_ns = std::max(until_ns, end_ns);
        }
        return sum_ns;
    }

    void add_errors() {
        // Several recordings of a boot may have the same line; one of them saw it happen.
        std::map<std::tuple<Index, std::uint64_t, std::uint64_t, std::uint32_t>, XidError> errors;
        for (const GatheredXid &xid : nccl_.gathered.xids) {
            const model::Session &session = model_.sessions[xid.session];
            if (session.excluded)
                continue;
            const bool is_before = (xid.record.flags & CW_XID_BEFORE) != 0;
            XidError error;
            error.session = xid.session;
            error.host = session.host;
            error.record = xid.record;
            const std::uint64_t time_ns =
                is_before ? xid.record.kernel_ns : std::uint64_t{xid.record.header.time_ns};
            error.realtime_ns = model_.hosts[session.host].realtime_ns(time_ns);
            error.uncertainty_ns =
                is_before ? 0 : time_ns - std::min<std::uint64_t>(time_ns, xid.record.after_ns);
            const auto [known, is_new] = errors.try_emplace(
                {session.host, xid.record.sequence, xid.record.bus_id, xid.record.xid}, error);
            if (!is_new && (known->second.record.flags & CW_XID_BEFORE) != 0)
                known->second = error;
        }
        for (auto &[key, error] : errors)
            nccl_.nvlink.errors.push_back(error);
        std::ranges::stable_sort(nccl_.nvlink.errors, {}, [](const XidError &error) {
            return std::tuple(error.realtime_ns, error.host, error.record.sequence);
        });
    }

    void find_failures() {
        std::vector<gpu::NvlinkError> facts;
        for (const XidError &error : nccl_.nvlink.errors) {
            gpu::NvlinkError fact;
            fact.latest_ns = error.realtime_ns;
            fact.earliest_ns =
                error.realtime_ns - std::min(error.realtime_ns, error.uncertainty_ns);
            fact.sequence = error.record.sequence;
            fact.host = error.host;
            fact.bus_id = error.record.bus_id;
            fact.xid = error.record.xid;
            fact.caused_by = error.record.caused_by;
            fact.link = error.record.link;
            fact.is_fatal = (error.record.flags & CW_XID_FATAL) != 0;
            fact.is_nonfatal = (error.record.flags & CW_XID_NONFATAL) != 0;
            facts.push_back(fact);
        }
        for (gpu::NvlinkFailure &failure : gpu::find_nvlink_failures(facts, APART_NS)) {
            if (nccl_.nvlink.failures.size() == MAX_FAILURES)
                break;
            NvlinkFailureFacts into;
            into.operations = operations_at(failure);
            into.failure = std::move(failure);
            nccl_.nvlink.failures.push_back(std::move(into));
            add_finding(nccl_.nvlink.failures.back());
        }
    }

    void add_finding(const NvlinkFailureFacts &of) {
        Finding finding;
        finding.kind = "nvlink_failure";
        finding.what = nvlink_failure_text(model_, of);
        std::set<std::string> hosts;
        for (const std::size_t i : of.failure.errors)
            hosts.insert(model_.hosts[nccl_.nvlink.errors[i].host].name);
        finding.hosts.assign(hosts.begin(), hosts.end());
        std::set<Index> communicators;
        for (const OperationAtFailure &at : of.operations)
            communicators.insert((at.is_pair ? nccl_.p2p : nccl_.collectives)[at.operation].comm);
        finding.communicators.assign(communicators.begin(), communicators.end());
        finding.evidence["errors"] = of.failure.errors.size();
        finding.evidence["gpus"] = of.failure.gpus;
        nccl_.findings.push_back(std::move(finding));
    }

    [[nodiscard]] std::vector<OperationAtFailure>
    operations_at(const gpu::NvlinkFailure &failure) const {
        const XidError &first = nccl_.nvlink.errors[failure.first];
        if ((first.record.flags & CW_XID_BEFORE) != 0) // no operation of that time is recorded
            return {};
        std::set<GpuKey> gpus;
        for (const std::size_t i : failure.errors)
            gpus.insert({nccl_.nvlink.errors[i].host, nccl_.nvlink.errors[i].record.bus_id});
        std::set<Index> communicators;
        for (const Instance &instance : nccl_.instances)
            if (instance.comm != NONE && gpus.contains({instance.host, instance.record.bus_id}))
                communicators.insert(instance.comm);
        std::vector<OperationAtFailure> found;
        for (const Index comm : communicators)
            add_operations(comm, first.realtime_ns, found);
        return found;
    }

    void add_operations(Index comm, std::uint64_t realtime_ns,
                        std::vector<OperationAtFailure> &found) const {
        OperationAtFailure last;
        std::uint64_t last_ns = 0;
        for (const bool is_pair : {false, true}) {
            const std::vector<Operation> &operations = is_pair ? nccl_.p2p : nccl_.collectives;
            for (Index i = 0; i < operations.size(); ++i) {
                const Operation &operation = operations[i];
                const std::uint64_t begin_ns = operation.begin_realtime_ns != 0
                                                   ? operation.begin_realtime_ns
                                                   : operation.called_realtime_ns;
                if (operation.comm != comm || begin_ns == 0 || begin_ns > realtime_ns)
                    continue;
                const bool is_over = operation.end_before_realtime_ns != 0 &&
                                     operation.end_before_realtime_ns <= realtime_ns;
                if (operation.end_after_realtime_ns > realtime_ns)
                    found.push_back({is_pair, i, true});
                else if (!is_over && begin_ns >= last_ns) {
                    last = {is_pair, i, false};
                    last_ns = begin_ns;
                }
            }
        }
        if (last.operation != NONE)
            found.push_back(last);
    }

    Model &model_;
    NcclFacts &nccl_;
};

} // namespace

void join_nvlink(Model &model) {
    if (model.nccl.gathered.nvlink_gpus.empty() && model.nccl.gathered.xids.empty())
        return;
    NvlinkJoiner(model).run();
}

} // namespace collwire::nccl
