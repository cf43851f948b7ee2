// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_local.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "correlate/nccl/describe.h"
#include "correlate/report/comm_groups.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;
using nccl::LocalTransport;

std::string_view local_transport_title(LocalTransport transport) {
    switch (transport) {
    case LocalTransport::Nvls:
        return "NVLS";
    case LocalTransport::Nvlink:
        return "NVLink";
    case LocalTransport::Pcie:
        return "PCIe P2P";
    case LocalTransport::P2p:
        return "P2P";
    case LocalTransport::Shm:
        return "SHM";
    case LocalTransport::Unknown:
        break;
    }
    return "P2P or SHM";
}

namespace {

class LocalTextWriter : private TextWriter {
public:
    LocalTextWriter(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                    const TextOptions &options)
        : TextWriter(options), nccl_(model.nccl), groups_(model.nccl, guesses) {}

    std::string run() {
        if (nccl_.local.sums.empty())
            return {};
        title("Payload of operations inside nodes, modelled");
        table();
        notes();
        return std::move(text_);
    }

private:
    using Rows = decltype(nccl::LocalFacts::sums);
    using Row = Rows::value_type;

    static void add(nccl::LocalSums &to, const nccl::LocalSums &sums) {
        to.operations += sums.operations;
        to.modelled += sums.modelled;
        to.partial += sums.partial;
        to.not_recorded += sums.not_recorded;
        for (std::size_t i = 0; i < to.not_modelled.size(); ++i)
            to.not_modelled[i] += sums.not_modelled[i];
        for (std::size_t i = 0; i < to.bytes.size(); ++i)
            to.bytes[i].add(sums.bytes[i]);
    }

    static std::uint64_t bytes_of(const nccl::LocalSums &sums) {
        std::uint64_t all = 0;
        for (const nccl::LocalBytes &bytes : sums.bytes)
            all = model::add_saturating(all, bytes.payload_bytes);
        return all;
    }

    void table() {
        Rows rows;
        for (const auto &[key, sums] : nccl_.local.sums)
            add(rows[{groups_.first_of(key.first), key.second}], sums);
        std::vector<const Row *> order;
        std::array<bool, nccl::LOCAL_TRANSPORTS> is_used{};
        for (const Row &row : rows) {
            order.push_back(&row);
            for (std::size_t i = 0; i < is_used.size(); ++i)
                is_used[i] = is_used[i] || row.second.bytes[i].payload_bytes != 0;
        }
        std::stable_sort(order.begin(), order.end(), [](const Row *a, const Row *b) {
            return bytes_of(a->second) > bytes_of(b->second);
        });
        std::vector<Column> columns = {{"comm", Align::Left, true}, {"operation"}};
        for (const LocalTransport transport : nccl::ALL_LOCAL_TRANSPORTS)
            columns.push_back({std::string(local_transport_title(transport)), Align::Right, false,
                               0, is_used[static_cast<std::size_t>(transport)]});
        columns.push_back({"count", Align::Right});
        columns.push_back({"modelled", Align::Right});
        columns.push_back({"partial", Align::Right, false, 1});
        columns.push_back({"unknown", Align::Right});
        Table table(std::move(columns));
        const std::size_t shown = std::min(order.size(), options_.rows);
        for (std::size_t i = 0; i < shown; ++i) {
            const auto &[key, sums] = *order[i];
            std::vector<std::string> row = {groups_.title_of(key.first),
                                            nccl::func_text(key.second)};
            const bool is_known = sums.modelled + sums.partial != 0;
            for (const LocalTransport transport : nccl::ALL_LOCAL_TRANSPORTS) {
                const std::uint64_t bytes =
                    sums.bytes[static_cast<std::size_t>(transport)].payload_bytes;
                row.push_back(!is_known ? "n/a" : bytes == 0 ? "" : human_bytes(bytes));
            }
            row.push_back(grouped(sums.operations));
            row.push_back(grouped(sums.modelled));
            row.push_back(grouped(sums.partial));
            row.push_back(grouped(sums.operations - sums.modelled - sums.partial));
            table.add(std::move(row));
        }
        text_ += table.text(width_);
        more(order.size(), shown, "operations of communicators");
    }

    void notes() {
        nccl::LocalSums all;
        for (const auto &[key, sums] : nccl_.local.sums)
            add(all, sums);
        wrapped("  modelled: computed from NCCL's launches, with the flags of LL and LL128; not "
                "measured, and in no other total",
                "  ", "");
        const auto is_used = [&](LocalTransport transport) {
            return all.bytes[static_cast<std::size_t>(transport)].payload_bytes != 0;
        };
        if (is_used(LocalTransport::Nvlink) || is_used(LocalTransport::Pcie))
            wrapped("  NVLink, PCIe P2P: from GPU to GPU, over what NVML says connects the two",
                    "  ", "");
        if (is_used(LocalTransport::Nvls))
            wrapped("  NVLS: what GPUs send to the NVLink switch. With n GPUs, each gets as much "
                    "back of an AllReduce, n times as much of an AllGather, 1/n of a ReduceScatter",
                    "  ", "");
        if (is_used(LocalTransport::P2p))
            wrapped("  P2P: NVLink or PCIe, which is not known; SHM: through host memory", "  ",
                    "");
        if (all.partial != 0)
            wrapped(fmt::format("  {} operation(s) are partial: launches of some ranks of the node "
                                "are not recorded, and their bytes are missing",
                                grouped(all.partial)),
                    "  ", "");
        if (all.not_recorded != 0)
            wrapped(fmt::format("  {} operation(s) have no recorded launch, so their bytes inside "
                                "nodes are unknown. Fix: `collwire record --local-launches` (NCCL "
                                "2.24 and later). Launches of CUDA graphs inside a node are never "
                                "recorded",
                                grouped(all.not_recorded)),
                    "  ", "");
        for (std::size_t i = 1; i < all.not_modelled.size(); ++i)
            if (all.not_modelled[i] != 0)
                wrapped(fmt::format("  {} operation(s) are not modelled: {}",
                                    grouped(all.not_modelled[i]),
                                    nccl::name_of(static_cast<nccl::NotModelled>(i))),
                        "  ", "");
    }

    const nccl::NcclFacts &nccl_;
    const CommGroups groups_;
};

} // namespace

std::string local_text(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                       const TextOptions &options) {
    return LocalTextWriter(model, guesses, options).run();
}

} // namespace collwire::report
