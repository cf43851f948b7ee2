// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <unordered_map>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/account_control.h"
#include "correlate/nccl/account_messages.h"
#include "correlate/nccl/bytes_by_kind.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/link_meter.h"
#include "correlate/nccl/resolve.h"
#include "correlate/nccl/unlisted.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;
using model::subtract_or_zero;

namespace {

struct LaunchRef {
    std::uint64_t time_ns = 0;
    Index instance = NONE;
    std::uint32_t launch = 0;
};

struct Recording {
    std::vector<Index> instances;
    std::vector<Index> links; // sending ones
};

class OperationAccountant {
public:
    explicit OperationAccountant(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        std::map<Index, Recording> by_session;
        for (Index index = 0; index < nccl_.instances.size(); ++index)
            by_session[nccl_.instances[index].session].instances.push_back(index);
        for (Index index = 0; index < nccl_.links.size(); ++index)
            if (const Link &link = nccl_.links[index]; link.is_send())
                by_session[link.session].links.push_back(index);
        for (auto &[session, recording] : by_session) {
            put_launches_in_order(recording.instances);
            for (std::uint32_t order = 0; order < launches_.size(); ++order)
                launches_of(launches_[order]).set_order(launches_[order].launch, order);
            measure(recording.links);
            give_bytes();
        }
        unjoined_.append_to(nccl_.unjoined);
        replays_.append_to(nccl_.replays);
        account_control(model_);
        for (std::vector<Operation> *operations : {&nccl_.collectives, &nccl_.p2p})
            for (Operation &operation : *operations) {
                complete(operation);
                add_to_communicator(operation);
            }
    }

private:
    void put_launches_in_order(const std::vector<Index> &instances) {
        launches_.clear();
        for (const Index index : instances) {
            const Instance &instance = nccl_.instances[index];
            const LaunchList &launches = nccl_.gathered.streams[instance.stream].launches;
            for (std::uint32_t i = 0; i < instance.n_launches; ++i)
                launches_.push_back({launches.time_ns(instance.first_launch + i), index,
                                     instance.first_launch + i});
        }
        std::stable_sort(
            launches_.begin(), launches_.end(),
            [](const LaunchRef &a, const LaunchRef &b) { return a.time_ns < b.time_ns; });
    }

    LaunchList &launches_of(const LaunchRef &ref) {
        return nccl_.gathered.streams[nccl_.instances[ref.instance].stream].launches;
    }
    Launch launch_of(const LaunchRef &ref) { return launches_of(ref)[ref.launch]; }
    [[nodiscard]] const std::vector<std::uint32_t> &task_calls_of(const LaunchRef &ref) const {
        return nccl_.task_calls[nccl_.instances[ref.instance].stream];
    }

    // Every sending operation, in launch order.
    template <typename Visit> void for_each_send(Visit visit) {
        for (const LaunchRef &ref : launches_) {
            const Launch &launch = launch_of(ref);
            if (launch.shape_index == NONE)
                continue;
            const Shape &shape = nccl_.shapes[launch.shape_index];
            for (std::uint32_t i = 0; i < shape.ops.size(); ++i)
                if (shape.ops[i].link != NONE && nccl_.links[shape.ops[i].link].is_send())
                    visit(launch, shape.ops[i], i);
        }
    }

    // The intervals of each flow of the recording.
    void measure(const std::vector<Index> &links) {
        std::unordered_map<Index, std::vector<LinkSample>> samples;
        for (const Index index : links)
            samples[index] =
                read_samples(model_, nccl_.links[index], is_late(model_, nccl_.links[index]));
        meter(samples, {});
        // If the measured bytes never match the expected ones, pauses have to separate intervals. A
        // transfer in flight at the end may pause for any time.
        std::unordered_map<Index, std::vector<LinkSample>> again;
        std::unordered_map<Index, std::vector<Interval>> before;
        std::unordered_map<Index, std::uint32_t> eager_until;
        for (auto &[index, of_link] : samples) {
            const std::vector<Interval> &intervals = nccl_.links[index].intervals;
            if (unchecked(intervals) - in_flight(intervals) <= 1)
                continue;
            eager_until[index] = in_flight(intervals) != 0 ? intervals.back().begin : UINT32_MAX;
            before[index] = intervals;
            again[index] = std::move(of_link);
        }
        if (!again.empty()) {
            meter(again, eager_until);
            for (auto &[index, intervals] : before) {
                std::vector<Interval> &after = nccl_.links[index].intervals;
                if (unchecked(intervals) <= unchecked(after))
                    after = std::move(intervals);
            }
        }
        find_ends(links);
        find_disturbed(links);
        solve_assumed(links);
    }

    // For API-only recordings.
    void solve_assumed(const std::vector<Index> &links) {
        std::unordered_map<Index, KindSums> assumed;
        for (const Index index : links)
            if (nccl_.links[index].is_assumed && !is_late(model_, nccl_.links[index]))
                assumed.try_emplace(index, nccl_.links[index]);
        if (assumed.empty())
            return;
        for_each_send([&](const Launch &launch, const ShapeOp &op, std::uint32_t) {
            if (const auto found = assumed.find(op.link); found != assumed.end())
                found->second.add(launch.order, op);
        });
        for (auto &[index, sums] : assumed)
            sums.solve();
    }

    // A launch that was not recorded completely may send over any connection, including those of
    // other ranks' proxies (PXN) and of communicators that share them.
    void find_disturbed(const std::vector<Index> &links) {
        std::vector<std::uint32_t> cut; // launch orders
        for (const LaunchRef &ref : launches_) {
            const Launch &launch = launch_of(ref);
            const bool is_lost = launch.shape_index == NONE && launch.n_ops != 0;
            if ((launch.flags & (CW_NCCL_LAUNCH_TRUNCATED | CW_NCCL_LAUNCH_FAULT)) != 0 ||
                is_lost ||
                (launch.shape_index != NONE && !nccl_.shapes[launch.shape_index].is_complete))
                cut.push_back(launch.order);
        }
        if (!cut.empty())
            for (const Index index : links)
                note_cut_launches(nccl_.links[index], cut);
    }

    // Operations whose computed bytes differ from the measured ones.
    static std::uint64_t unchecked(const std::vector<Interval> &intervals) {
        std::uint64_t ops = in_flight(intervals);
        for (const Interval &interval : intervals)
            if (interval.kind == IntervalKind::Shortage || interval.kind == IntervalKind::Excess)
                ops += interval.n_ops;
        return ops;
    }
    // Operations that were in flight when the recording ended.
    static std::uint64_t in_flight(const std::vector<Interval> &intervals) {
        return !intervals.empty() && intervals.back().kind == IntervalKind::InFlight
                   ? intervals.back().n_ops
                   : 0;
    }

    // `eager_until`: by flow; absent: 0.
    void meter(const std::unordered_map<Index, std::vector<LinkSample>> &samples,
               const std::unordered_map<Index, std::uint32_t> &eager_until) {
        std::unordered_map<Index, LinkMeter> meters;
        for (const auto &[index, of_link] : samples) {
            const auto until = eager_until.find(index);
            meters.try_emplace(index, nccl_.links[index], of_link,
                               is_late(model_, nccl_.links[index]),
                               until == eager_until.end() ? 0 : until->second);
        }
        for_each_send([&](const Launch &launch, const ShapeOp &op, std::uint32_t) {
            if (const auto found = meters.find(op.link); found != meters.end())
                found->second.launch(op, launch.time_ns, launch.order);
        });
        for (auto &[index, of_link] : meters)
            of_link.finish(static_cast<std::uint32_t>(launches_.size()),
                           is_open(nccl_.links[index]));
    }

    // Still open when the recording ended.
    [[nodiscard]] bool is_open(const Link &link) const {
        return std::none_of(link.instances.begin(), link.instances.end(),
                            [&](Index index) { return nccl_.instances[index].ended; }) &&
               std::none_of(link.qps.begin(), link.qps.end(),
                            [&](Index index) { return model_.qps[index].destroyed_ns != 0; });
    }

    // Where the bytes end on a flow that was active when the recording ended.
    void find_ends(const std::vector<Index> &links) {
        std::unordered_map<Index, std::uint64_t> left;
        for (const Index index : links) {
            Link &link = nccl_.links[index];
            if (!link.intervals.empty() && link.intervals.back().kind == IntervalKind::InFlight) {
                link.intervals.back().last_order = UINT32_MAX;
                left[index] = link.intervals.back().measured_bytes;
            }
        }
        if (left.empty())
            return;
        for_each_send([&](const Launch &launch, const ShapeOp &op, std::uint32_t i) {
            const auto found = left.find(op.link);
            if (found == left.end())
                return;
            Link &link = nccl_.links[op.link];
            Interval &interval = link.intervals.back();
            if (launch.order < interval.begin || interval.last_order != UINT32_MAX)
                return;
            const std::uint64_t bytes = bytes_on(link, op);
            if (bytes <= found->second) {
                found->second -= bytes;
                return;
            }
            interval.last_order = launch.order;
            interval.last_op = i;
            interval.last_bytes = found->second;
        });
    }

    void give_bytes() {
        for (const LaunchRef &ref : launches_) {
            const Launch launch = launch_of(ref);
            if (launch.shape_index == NONE) {
                damage_calls(ref, launch);
                continue;
            }
            Shape &shape = nccl_.shapes[launch.shape_index];
            if (shape.task_channels.empty())
                count_channels(shape, launch, task_calls_of(ref));
            describe_operations(ref, launch, shape);
            for (std::uint32_t i = 0; i < shape.ops.size(); ++i)
                give_op(ref, launch, shape, i);
        }
    }

    // The operation of a launch's task; null: not known.
    Operation *operation_of(const LaunchRef &ref, const Launch &launch, std::uint32_t task,
                            bool *is_p2p_operation = nullptr) {
        const auto [is_pair, index] =
            nccl::operation_of(nccl_, nccl_.instances[ref.instance], launch, task);
        if (index == NONE)
            return nullptr;
        if (is_p2p_operation != nullptr)
            *is_p2p_operation = is_pair;
        return is_pair ? &nccl_.p2p[index] : &nccl_.collectives[index];
    }

    [[nodiscard]] Rung rung_of_call(const LaunchRef &ref, const Launch &launch,
                                    std::uint32_t task) const {
        return nccl::rung_of_call(nccl_, nccl_.instances[ref.instance], launch,
                                  task_calls_of(ref)[launch.first_task + task]);
    }

    // nullptr: not read, or this version has no tasks.
    static const cw_nccl_shape_task *task_of(const Shape &shape, const ShapeOp &op) {
        const bool is_read =
            op.task < shape.tasks.size() && shape.tasks[op.task].header.length_bytes != 0;
        return is_read ? &shape.tasks[op.task] : nullptr;
    }

    // Only the owner of these launched bytes is known.
    void damage_calls(const LaunchRef &ref, const Launch &launch) {
        if (launch.n_ops == 0)
            return;
        for (std::uint32_t task = 0; task < launch.n_tasks; ++task)
            if (Operation *operation = operation_of(ref, launch, task); operation != nullptr) {
                operation->flags |= OPERATION_PARTIAL;
                operation->rung = Rung::Process;
                note_launch(*operation, ref, launch);
            }
    }

    static void count_channels(Shape &shape, const Launch &launch,
                               const std::vector<std::uint32_t> &task_calls) {
        std::map<std::uint32_t, std::vector<std::uint8_t>>
            channels; // by call, or by task without a call
        const auto key = [&](std::uint32_t task) {
            const std::uint32_t call =
                task < launch.n_tasks ? task_calls[launch.first_task + task] : NONE;
            return call != NONE ? call : ~task;
        };
        for (const ShapeOp &op : shape.ops) {
            std::vector<std::uint8_t> &seen = channels[key(op.task)];
            if (std::find(seen.begin(), seen.end(), op.channel) == seen.end())
                seen.push_back(op.channel);
        }
        for (std::uint32_t task = 0; task < shape.tasks.size(); ++task)
            shape.task_channels.push_back(static_cast<std::uint16_t>(channels[key(task)].size()));
        shape.task_channels.resize(std::max<std::size_t>(shape.task_channels.size(), 1));
    }

    void note_launch(Operation &operation, const LaunchRef &ref, const Launch &launch) const {
        operation.flags |= OPERATION_LAUNCHED;
        if ((launch.flags & CW_NCCL_LAUNCH_TRUNCATED) != 0)
            operation.flags |= OPERATION_TRUNCATED | OPERATION_PARTIAL;
        if ((launch.flags & CW_NCCL_LAUNCH_FAULT) != 0)
            operation.flags |= OPERATION_PARTIAL;
        const std::uint64_t launched_ns =
            model_.hosts[nccl_.instances[ref.instance].host].realtime_ns(launch.time_ns);
        operation.launched_realtime_ns = std::max(operation.launched_realtime_ns, launched_ns);
        if (operation.begin_realtime_ns == 0 || launched_ns < operation.begin_realtime_ns)
            operation.begin_realtime_ns = launched_ns;
    }

    // Operation details from the launch's tasks.
    void describe_operations(const LaunchRef &ref, const Launch &launch, const Shape &shape) {
        if (shape.is_assumed)
            return;
        std::vector<const Operation *> distinct;
        for (std::uint32_t task = 0; task < launch.n_tasks && task < shape.tasks.size(); ++task)
            if (const Operation *operation = operation_of(ref, launch, task);
                operation != nullptr && (distinct.empty() || distinct.back() != operation))
                distinct.push_back(operation);
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        const auto batch =
            static_cast<std::uint16_t>(std::min<std::size_t>(distinct.size(), UINT16_MAX));
        const Operation *last = nullptr;
        for (std::uint32_t task = 0; task < launch.n_tasks && task < shape.tasks.size(); ++task) {
            Operation *operation = operation_of(ref, launch, task);
            if (operation == nullptr || operation == last)
                continue;
            last = operation;
            note_launch(*operation, ref, launch);
            if (!shape.is_complete)
                operation->flags |= OPERATION_PARTIAL;
            operation->batch = std::max(operation->batch, batch);
            const cw_nccl_shape_task &shape_task = shape.tasks[task];
            const bool is_read = shape_task.header.length_bytes != 0;
            const std::uint8_t algorithm = is_read ? shape_task.algorithm : shape.algorithm;
            if (operation->algorithm == CW_NCCL_ALGORITHM_UNKNOWN && !is_p2p(shape_task.func))
                operation->algorithm = algorithm;
            if (operation->protocol == CW_NCCL_PROTOCOL_UNKNOWN)
                operation->protocol = is_read ? shape_task.protocol : shape.protocol;
            const std::uint16_t channels = is_read && shape_task.n_channels != 0
                                               ? shape_task.n_channels
                                               : shape.task_channels[task];
            operation->n_channels = std::max(operation->n_channels, channels);
        }
    }

    void give_op(const LaunchRef &ref, const Launch &launch, const Shape &shape,
                 std::uint32_t op_index) {
        const ShapeOp &op = shape.ops[op_index];
        if (op.is_local)
            return;
        bool is_pair = false;
        Operation *operation = operation_of(ref, launch, op.task, &is_pair);
        if (op.link == NONE) {
            if (operation != nullptr)
                operation->flags |= OPERATION_PARTIAL;
            else
                unlisted_of(ref, launch, op).add(ref.instance, launch, func_of(shape, op), {});
            return;
        }
        Link &link = nccl_.links[op.link];
        if (!link.is_send()) {
            note_received(model_, link, op);
            return;
        }
        OpShare share = share_of(link, op, launch.order, op_index);
        note_messages(model_, link, op, share);
        // Queue pairs that were chosen by their bytes agree with them by construction.
        const bool is_confirmed = share.rung == Rung::Exact && share.is_agreed && !link.is_by_bytes;
        share.rung = std::min(share.rung, link.rung);
        if (operation != nullptr) {
            share.rung = std::min(share.rung, rung_of_call(ref, launch, op.task));
            add_to(*operation, is_pair, link, op, share);
        } else {
            UnlistedSums &unlisted = unlisted_of(ref, launch, op);
            // For a graph that was captured before the recording, the operation is read from the
            // task.
            const bool is_read =
                (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0 && task_of(shape, op) != nullptr;
            const Rung of_call = &unlisted == &replays_ ? rung_of_call(ref, launch, op.task)
                                 : is_read              ? Rung::Exact
                                                        : Rung::Inferred;
            share.rung = std::min(share.rung, of_call);
            unlisted.add(ref.instance, launch, func_of(shape, op), share);
        }
        if (!share.is_known)
            return;
        if (link.is_followed())
            add_to_totals(share, is_confirmed);
        const Instance &instance = nccl_.instances[ref.instance];
        add_to_matrix(nccl_, link, instance.comm, instance.record.rank, op.peer,
                      share.payload_bytes, share.wire_bytes);
        add(link.attributed_bytes, share.payload_bytes);
        add(link.attributed_header_bytes, share.header_bytes);
        add(link.attributed_wire_bytes, share.wire_bytes.value_or(0));
    }

    static void add(std::uint64_t &sum, std::uint64_t value) { sum = add_saturating(sum, value); }

    void add_to_totals(const OpShare &share, bool is_confirmed) {
        if (share.rung == Rung::Inferred && is_confirmed)
            add(nccl_.totals.confirmed_bytes, share.payload_bytes);
        nccl_.totals.is_known = true;
        add(nccl_.totals.by_rung[static_cast<std::size_t>(share.rung)], share.payload_bytes);
        add(nccl_.totals.by_source[static_cast<std::size_t>(share.source)], share.payload_bytes);
    }

    void add_to(Operation &operation, bool is_pair, const Link &link, const ShapeOp &op,
                const OpShare &share) {
        operation.flags |= OPERATION_HAS_BYTES;
        operation.rung = std::min(operation.rung, share.rung);
        if (!share.is_whole)
            operation.flags |= OPERATION_PARTIAL;
        if (!share.is_known) {
            operation.flags |= OPERATION_BOUND;
            return;
        }
        operation.sources |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(share.source));
        operation.flags |= OPERATION_PAYLOAD_KNOWN;
        add(operation.payload_bytes, share.payload_bytes);
        if (op.is_known && !op.is_bound && op.payload_bytes == share.payload_bytes) {
            operation.flags |= OPERATION_DATA_KNOWN;
            add(operation.data_bytes, op.data_bytes);
        } else if (share.payload_bytes != 0) {
            operation.flags |= OPERATION_DATA_UNKNOWN;
        }
        if (share.wire_bytes) {
            operation.flags |= OPERATION_WIRE_KNOWN;
            add(operation.wire_bytes, *share.wire_bytes);
        } else {
            operation.flags |= OPERATION_WIRE_UNKNOWN;
        }
        add_tiers(operation, is_pair, link, share.payload_bytes, share.wire_bytes.value_or(0));
    }

    void add_tiers(Operation &operation, bool is_pair, const Link &link,
                   std::uint64_t payload_bytes, std::uint64_t wire_bytes) {
        const auto parts = by_tier(link, payload_bytes, wire_bytes);
        const std::uint8_t before = operation.tiers;
        for (std::size_t tier = 0; tier < model::TIERS; ++tier)
            if (parts[tier].first != 0 || parts[tier].second != 0)
                operation.tiers |= static_cast<std::uint8_t>(1U << tier);
        // A single tier has all of its bytes.
        if (std::has_single_bit(operation.tiers) || operation.tiers == 0)
            return;
        const auto &operations = is_pair ? nccl_.p2p : nccl_.collectives;
        const std::pair key(is_pair, static_cast<Index>(&operation - operations.data()));
        auto &sums = nccl_.bytes_by_tier[key];
        if (std::has_single_bit(before)) {
            auto &[payload, wire] = sums[static_cast<std::size_t>(std::countr_zero(before))];
            payload = subtract_or_zero(operation.payload_bytes, payload_bytes);
            wire = subtract_or_zero(operation.wire_bytes, wire_bytes);
        }
        for (std::size_t tier = 0; tier < model::TIERS; ++tier) {
            add(sums[tier].first, parts[tier].first);
            add(sums[tier].second, parts[tier].second);
        }
    }

    UnlistedSums &unlisted_of(const LaunchRef &ref, const Launch &launch, const ShapeOp &op) {
        return is_left_out(nccl_, nccl_.instances[ref.instance], launch, op.task) ? replays_
                                                                                  : unjoined_;
    }

    // From the call, as far as it is known.
    static std::uint8_t func_of(const Shape &shape, const ShapeOp &op) {
        const cw_nccl_shape_task *task = task_of(shape, op);
        if (task == nullptr)
            return shape.func;
        return is_p2p(task->func) ? task->api_func : task->func;
    }

    static void complete(Operation &operation) {
        if (operation.has(OPERATION_BOUND) && operation.has(OPERATION_PAYLOAD_KNOWN))
            operation.flags |= OPERATION_PARTIAL;
        if (operation.has(OPERATION_DATA_UNKNOWN))
            operation.flags &= static_cast<std::uint16_t>(~OPERATION_DATA_KNOWN);
        if (operation.has(OPERATION_WIRE_UNKNOWN))
            operation.flags &= static_cast<std::uint16_t>(~OPERATION_WIRE_KNOWN);
        // No sending proxy on any rank got work, so nothing was sent. Data that must cross then
        // takes an invisible path, such as GPU-initiated sends (GIN), or was never launched.
        if (!operation.has(OPERATION_HAS_BYTES) && !operation.has(OPERATION_PARTIAL) &&
            !operation.has(OPERATION_LACKS_RECORDS) && !operation.crosses_nodes)
            operation.flags |=
                OPERATION_PAYLOAD_KNOWN | OPERATION_DATA_KNOWN | OPERATION_WIRE_KNOWN;
        if (!operation.has(OPERATION_PAYLOAD_KNOWN))
            operation.rung = Rung::Process;
    }

    void add_to_communicator(const Operation &operation) {
        const TierBytes bytes = bytes_by_tier(nccl_, operation);
        for (std::size_t tier = 0; tier < model::TIERS; ++tier)
            if ((operation.tiers & (1U << tier)) != 0)
                nccl_.tiers[{operation.comm, static_cast<topology::Tier>(tier)}].add(
                    bytes[tier].first,
                    operation.has(OPERATION_WIRE_KNOWN) ? Known(bytes[tier].second) : std::nullopt);
    }

    Model &model_;
    NcclFacts &nccl_;
    std::vector<LaunchRef> launches_; // of a recording, in time order
    UnlistedSums unjoined_, replays_;
};

} // namespace

void account_operations(Model &model) {
    OperationAccountant(model).run();
}

} // namespace collwire::nccl
