// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/wire_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/model/join.h"
#include "correlate/model/posted.h"

namespace collwire::model {

namespace {

std::uint64_t sum_of(const __u64 (&of_class)[CW_WIRE_CLASSES], bool with_retransmissions) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < CW_WIRE_CLASSES; ++i)
        if (with_retransmissions || i != CW_WIRE_RETRANSMIT)
            sum = add_saturating(sum, of_class[i]);
    return sum;
}

// A source's state for a device takes precedence over its state for the node.
cw_source_state state_of(const Session &session, const char *name, std::uint32_t dev_index) {
    for (const std::uint32_t index : {dev_index, DEV_INDEX_NODE})
        if (const auto found = session.sources.find({name, index}); found != session.sources.end())
            return found->second.state;
    return CW_SOURCE_OFF;
}

class Measurer {
public:
    explicit Measurer(Model &model) : model_(model) {}

    // One end's bytes need both ends' posts, so all posts come first.
    void run() {
        posted_.resize(model_.qps.size());
        for (std::size_t i = 0; i < model_.qps.size(); ++i)
            posted_[i] = read_posts(model_.qps[i]);
        for (std::size_t i = 0; i < model_.qps.size(); ++i)
            measure(model_.qps[i], posted_[i]);
        for (Qp &qp : model_.qps)
            mark_losses(qp);
    }

private:
    // If every packet is counted, a queue pair without a record had none.
    [[nodiscard]] bool counts_packets(const Qp &qp) const {
        const Session &session = model_.sessions[qp.session];
        const auto state = state_of(session, "rxe_wire", qp.key.dev_index);
        // Counts from before a refusal use the same wrong layout, and stop there.
        if (state == CW_SOURCE_REFUSED)
            return false;
        return qp.wire || (qp.device != NONE && model_.devices[qp.device].is_software() &&
                           (session.flags & CW_NODE_WIRE) != 0 && state == CW_SOURCE_ON);
    }

    // Before it is connected it sends nothing.
    [[nodiscard]] bool counted_posts(const Qp &qp) const {
        const Session &session = model_.sessions[qp.session];
        const std::uint64_t from_ns =
            std::max<std::uint64_t>(qp.key.generation_ns, qp.connected_ns);
        return session.counted_posts(qp.tgid, from_ns,
                                     qp.destroyed_ns != 0 ? qp.destroyed_ns : session.end_ns);
    }

    [[nodiscard]] std::optional<PostedBytes> read_posts(const Qp &qp) const {
        const Port *port = qp.port == NONE ? nullptr : &model_.ports[qp.port];
        if (!counted_posts(qp))
            return std::nullopt;
        if (qp.posts)
            return posted_bytes(qp, port, *qp.posts);
        const Session &session = model_.sessions[qp.session];
        // The kernel's own queue pairs bypass every probe; those made through DEVX mostly bypass
        // the library.
        if (qp.has(CW_QP_KERNEL) || qp.has(CW_QP_DEVX) || (session.flags & CW_NODE_POSTS) == 0 ||
            state_of(session, "posts", qp.key.dev_index) != CW_SOURCE_ON)
            return std::nullopt;
        return posted_bytes(qp, port, cw_post_counters{});
    }

    void measure(Qp &qp, const std::optional<PostedBytes> &own) const {
        if (own)
            qp.posted_tx_payload_bytes = own->tx_payload_bytes;
        if (counts_packets(qp)) {
            measure_wire(qp);
            return;
        }
        if (!own)
            return;
        QpBytes &bytes = qp.bytes;
        bytes.rung = BytesRung::Posted;
        bytes.tx_payload_bytes = own->tx_payload_bytes;
        bytes.tx_wire_bytes = own->request_wire_bytes;
        bytes.assumed_ipv4 = own->assumed_ipv4;
        if (qp.peer == NONE || qp.peer_in_parts || !posted_[qp.peer])
            return;
        const PostedBytes &peer = *posted_[qp.peer];
        bytes.rx_from_peer = true;
        bytes.rx_payload_bytes = add_saturating(own->read_payload_bytes, peer.tx_payload_bytes);
        bytes.tx_response_wire_bytes = peer.response_wire_bytes;
        if (bytes.tx_wire_bytes) // a part would look like the whole
            add_known(bytes.tx_wire_bytes, peer.response_wire_bytes);
        if (peer.request_wire_bytes && own->response_wire_bytes)
            bytes.rx_wire_bytes =
                add_saturating(*peer.request_wire_bytes, *own->response_wire_bytes);
    }

    static void measure_wire(Qp &qp) {
        static const cw_wire_counters nothing{};
        const cw_wire_counters &wire = qp.wire ? qp.wire->last : nothing;
        QpBytes &bytes = qp.bytes;
        bytes.rung = BytesRung::Wire;
        bytes.tx_payload_bytes = sum_of(wire.tx.payload_bytes, false);
        bytes.rx_payload_bytes = sum_of(wire.rx.payload_bytes, false);
        bytes.tx_wire_bytes = sum_of(wire.tx.wire_bytes, true);
        bytes.rx_wire_bytes = sum_of(wire.rx.wire_bytes, true);
        bytes.retransmitted_wire_bytes = wire.tx.wire_bytes[CW_WIRE_RETRANSMIT];
        bytes.tx_response_wire_bytes = wire.tx.wire_bytes[CW_WIRE_RESPONSE];
        bytes.tx_ack_wire_bytes = wire.tx.wire_bytes[CW_WIRE_ACK];
    }

    // The probes that count its bytes were taken off while it existed.
    [[nodiscard]] bool outlived_probes(const Qp &qp) const {
        const std::uint64_t counted_until_ns = model_.sessions[qp.session].counted_until_ns(
            qp.bytes.rung == BytesRung::Wire ? "rxe_wire" : "posts");
        return qp.bytes.rung != BytesRung::None && counted_until_ns != UINT64_MAX &&
               (qp.destroyed_ns == 0 || qp.destroyed_ns > counted_until_ns);
    }

    // A loss cannot be assigned to one queue pair, so it marks all of the recording that it may
    // affect.
    void mark_losses(Qp &qp) const {
        static constexpr std::array wire_losses = {CW_LOSS_QP_TABLE,     CW_LOSS_WIRE_TABLE,
                                                   CW_LOSS_WIRE_FRAME,   CW_LOSS_CALL_TABLE,
                                                   CW_LOSS_PROBE_MISSED, CW_LOSS_RECORD_WRITE};
        static constexpr std::array post_losses = {CW_LOSS_VERBS_QP, CW_LOSS_POST_TABLE,
                                                   CW_LOSS_PROBE_MISSED, CW_LOSS_RECORD_WRITE,
                                                   CW_LOSS_RING_UNREAD};
        const Session &session = model_.sessions[qp.session];
        std::set<std::uint32_t> damaging;
        if (!session.loss.empty() && qp.bytes.rung != BytesRung::None) {
            const std::span<const cw_loss_class> classes =
                qp.bytes.rung == BytesRung::Wire ? std::span<const cw_loss_class>(wire_losses)
                                                 : std::span<const cw_loss_class>(post_losses);
            for (const auto &[class_and_cpu, records] : session.loss)
                if (records != 0 &&
                    std::find(classes.begin(), classes.end(), class_and_cpu.first) != classes.end())
                    damaging.insert(class_and_cpu.first);
        }
        if (qp.bytes.rung == BytesRung::Posted && qp.posts) {
            if (qp.posts->truncated_posts != 0)
                damaging.insert(CW_LOSS_POST_TRUNCATED);
            if (qp.posts->fault_posts != 0)
                damaging.insert(CW_LOSS_POST_FAULT);
        }
        for (const std::uint32_t loss_class : damaging)
            qp.damaged_by.emplace_back(capture::loss_class_name(loss_class));
        const bool has_part_of_peer = qp.bytes.rx_from_peer && outlived_probes(model_.qps[qp.peer]);
        if (outlived_probes(qp) || has_part_of_peer)
            qp.damaged_by.emplace_back("taken_off");
    }

    Model &model_;
    std::vector<std::optional<PostedBytes>> posted_;
};

} // namespace

void measure(Model &model) {
    Measurer(model).run();
}

} // namespace collwire::model
