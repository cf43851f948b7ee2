// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_sockets.h"

#include <fmt/format.h>

#include <algorithm>

#include "collwire/socket_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/names.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using model::NONE;

namespace {

class SocketTextWriter : private TextWriter {
public:
    SocketTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model), nccl_(model.nccl) {}

    std::string run() {
        std::vector<Index> order = sockets_in_order(model_);
        if (order.empty())
            return {};
        const auto weight = [&](Index index) {
            const nccl::SocketIdentity &socket = nccl_.sockets[index];
            return std::pair(socket.tx_bytes, socket.rx_bytes);
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](Index a, Index b) { return weight(a) > weight(b); });
        const std::size_t shown = std::min(order.size(), options_.rows);
        const auto is_wanted = [&](const auto &has) {
            return std::any_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown),
                               has);
        };
        title("NCCL's sockets, payload, the most sent first");
        Table table({{"host", Align::Left, true},
                     {"netdev", Align::Left, false, 6,
                      is_wanted([&](Index i) { return nccl_.sockets[i].port != NONE; })},
                     {"local", Align::Left, false, 4},
                     {"to", Align::Left, true},
                     {"remote", Align::Left, false, 1},
                     {"pid", Align::Right, false, 7},
                     {"comm", Align::Right},
                     {"ranks"},
                     {"channel", Align::Right, false, 3},
                     {"role", Align::Left, false, 5},
                     {"tier"},
                     {"sent", Align::Right},
                     {"received", Align::Right},
                     {"retrans", Align::Right},
                     {"rtt", Align::Right, false, 2}});
        for (std::size_t i = 0; i < shown; ++i)
            table.add(row_of(order[i]));
        text_ += table.text(width_);
        more(order.size(), shown, "sockets");
        return std::move(text_);
    }

private:
    [[nodiscard]] std::vector<std::string> row_of(Index index) const {
        const nccl::Socket &socket = nccl_.gathered.sockets[index];
        const nccl::SocketIdentity &identity = nccl_.sockets[index];
        const cw_tcp_socket &last = socket.last;
        const nccl::Link *link = identity.link == NONE ? nullptr : &nccl_.links[identity.link];
        const Index comm = link == nullptr ? NONE : nccl::only_communicator(nccl_, *link);
        const std::string_view role = nccl::socket_role_name(identity);
        return {
            printable(model_.hosts[model_.sessions[socket.session].host].name),
            identity.port == NONE ? "-" : printable(model_.ports[identity.port].netdev),
            nccl::endpoint_text(last.local_address, last.local_port),
            identity.remote_host.empty() ? "-" : printable(identity.remote_host),
            nccl::endpoint_text(last.remote_address, last.remote_port),
            std::to_string(socket.tgid),
            comm == NONE ? "-" : std::to_string(comm),
            link == nullptr
                ? "-"
                : fmt::format("{} {} {}", link->rank, link->is_send() ? "to" : "from", link->peer),
            link != nullptr && link->channels.size() == 1 ? std::to_string(link->channels.front())
                                                          : "-",
            role.empty() ? "-" : std::string(role),
            std::string(topology::tier_name(identity.tier)),
            human_bytes(identity.tx_bytes) + (identity.is_cut_short ? " (incomplete)" : ""),
            human_bytes(identity.rx_bytes),
            human_bytes(identity.retransmitted_bytes),
            last.rtt_us == 0 ? "n/a" : short_duration(std::uint64_t{last.rtt_us} * 1000)};
    }

    const Model &model_;
    const nccl::NcclFacts &nccl_;
};

} // namespace

std::string sockets_text(const Model &model, const TextOptions &options) {
    return SocketTextWriter(model, options).run();
}

} // namespace collwire::report
