// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/socket_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/comm_groups.h"
#include "correlate/report/comm_label.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::report {

using model::Index;
using model::Known;
using model::Model;
using model::NONE;
using nccl::Operation;
using nccl::Rung;

namespace {

constexpr std::int32_t MATRIX_RANKS = 12;
constexpr std::size_t MATRICES = 4;

// Equal operations, which share a row.
struct Kind {
    Index comm = NONE; // the first of its group
    std::uint8_t func = 0;
    Known size_bytes;
    std::uint8_t algorithm = 0;
    std::uint8_t protocol = 0;
    friend auto operator<=>(const Kind &, const Kind &) = default;
};
struct KindTotals {
    std::uint64_t operations = 0;
    std::uint64_t partial = 0;
    std::uint64_t unknown = 0; // operations whose bytes are not all known
    std::uint64_t payload_bytes = 0;
    Known wire_bytes;
    Rung rung = Rung::Exact;
    std::uint64_t first_ns = UINT64_MAX;
    std::uint64_t last_ns = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>>
        durations; // upper and lower bound of each known one
};

std::string rank_text(std::int32_t rank) {
    return rank < 0 ? "?" : std::to_string(rank);
}

// The percentile of the durations; an upper bound if the samples are too far apart for a value.
std::string duration_text(std::vector<std::pair<std::uint64_t, std::uint64_t>> &durations,
                          std::size_t percent) {
    if (durations.empty())
        return "n/a";
    const auto at = durations.begin() +
                    static_cast<std::ptrdiff_t>((durations.size() * percent + 99) / 100 - 1);
    std::nth_element(durations.begin(), at, durations.end());
    const auto &[most, least] = *at;
    return (most - least > most / 10 ? "<= " : "") + short_duration(most);
}

class NcclTextWriter : private TextWriter {
public:
    NcclTextWriter(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                   const TextOptions &options)
        : TextWriter(options), model_(model), nccl_(model.nccl), guesses_(guesses),
          groups_(model.nccl, guesses) {}

    std::string run() {
        if (!nccl_.recorded && nccl_.instances.empty())
            return {};
        findings();
        identity();
        libraries();
        communicators();
        operations();
        matrices();
        return std::move(text_);
    }

private:
    void findings() {
        if (nccl_.findings.empty())
            return;
        title("Findings, by severity");
        std::size_t shown = 0;
        for (const nccl::Finding &finding : nccl_.findings) {
            if (shown == options_.rows)
                break;
            wrapped("  " + printable(fmt::format("{}: {}", finding.kind, finding.what)), "    ",
                    shown == 0 ? "1;33" : "33");
            ++shown;
        }
        more(nccl_.findings.size(), shown, "findings");
    }

    // The computed bytes that were counted as posts, too.
    void verified() {
        const nccl::PostVerification &of = nccl_.verified;
        if (of.slices == 0)
            return;
        wrapped(
            fmt::format("  {} of the computed bytes of NCCL connections are verified: {} of {}, {} "
                        "operation(s) on connections. Posts were counted in {} slice(s), {:.1f} s "
                        "together. Connections and slices: {} equal, {} differ",
                        share(of.verified_bytes, of.derived_bytes), human_bytes(of.verified_bytes),
                        human_bytes(of.derived_bytes), grouped(of.operations), grouped(of.slices),
                        static_cast<double>(of.slices_ns) / 1e9, grouped(of.connections_equal),
                        grouped(of.differences.size())),
            "  ", of.differences.empty() ? "" : "1;33");
        std::string why;
        for (const auto &[reason, n] : of.not_compared)
            why +=
                fmt::format("{}{} {}", why.empty() ? "" : ", ", grouped(n), obstacle_text(reason));
        if (!why.empty())
            wrapped("  Not compared: " + why, "  ", "");
        if (of.queue_pairs_not_counted != 0)
            wrapped(fmt::format("  {} queue pair(s) of no known NCCL connection lived while no "
                                "posts were counted: their bytes are in no sum. Fix: "
                                "`collwire record --posts=on`",
                                grouped(of.queue_pairs_not_counted)),
                    "  ", "33");
    }

    static std::string_view obstacle_text(std::string_view reason) {
        return reason == "no_whole_operation"   ? "without a whole operation in the slice"
               : reason == "position_unknown"   ? "whose operations have no certain place in "
                                                  "NCCL's count of steps"
               : reason == "shared_queue_pairs" ? "on queue pairs of several connections"
               : reason == "bytes_unknown"      ? "with an operation of unknown bytes"
                                                : "with a post that could not be read";
    }

    void identity() {
        title("How sure collwire is which operation sent the bytes");
        const nccl::Totals &totals = nccl_.totals;
        if (!totals.is_known) {
            line("  no bytes were measured, and none could be computed");
            return;
        }
        Known all = 0;
        for (const std::uint64_t bytes : totals.by_rung)
            model::add_known(all, bytes);
        Table table({{"certainty"},
                     {"payload", Align::Right},
                     {"bytes", Align::Right},
                     {"share", Align::Right}});
        for (const Rung rung : {Rung::Exact, Rung::Inferred, Rung::Process}) {
            const std::uint64_t bytes = totals.by_rung[static_cast<std::size_t>(rung)];
            table.add({std::string(nccl::rung_name(rung)), human_bytes(bytes), grouped(bytes),
                       share(bytes, all)});
        }
        text_ += table.text(width_);
        wrapped("  exact: read from NCCL; inferred: deduced; process: only the process is known",
                "  ", "");
        if (const std::uint64_t inferred = totals.by_rung[static_cast<std::size_t>(Rung::Inferred)];
            inferred != 0)
            wrapped(fmt::format("  {} of the inferred bytes are confirmed: the connection carried "
                                "exactly the bytes of its operations until all were complete",
                                share(totals.confirmed_bytes, inferred)),
                    "  ", "");
        const char *counted = model_.total.tcp.sockets == 0 ? "measured on the wire"
                              : model_.total.tx_payload_bytes.value_or(0) == 0
                                  ? "measured by the kernel on sockets"
                                  : "measured on the wire, or by the kernel on sockets";
        std::string by;
        for (const auto source :
             {nccl::ByteSource::Wire, nccl::ByteSource::Posted, nccl::ByteSource::Derived})
            if (const std::uint64_t bytes = totals.by_source[static_cast<std::size_t>(source)];
                bytes != 0)
                by += fmt::format("{}{} {}", by.empty() ? "" : ", ", human_bytes(bytes),
                                  source == nccl::ByteSource::Wire ? counted
                                  : source == nccl::ByteSource::Posted
                                      ? "posted"
                                      : "computed from operations only");
        if (!by.empty())
            wrapped("  " + by, "  ", "");
        verified();
        const nccl::Control &control = nccl_.control;
        std::string control_text;
        const auto add = [&](std::string_view name, const Known &bytes) {
            if (bytes && *bytes != 0)
                control_text += fmt::format("{}{} {}", control_text.empty() ? "" : ", ",
                                            human_bytes(*bytes), name);
        };
        add("clear-to-send", control.clear_to_send_payload_bytes);
        add("flush", control.flush_payload_bytes);
        add("acknowledgements", control.ack_wire_bytes);
        add("message sizes on sockets", control.socket_header_bytes);
        add("on other sockets", control.other_socket_bytes);
        const auto add_sockets = [&](std::string_view name, cw_nccl_socket_type type) {
            add(name, control.sockets[type].payload_bytes);
        };
        add_sockets("bootstrap", CW_NCCL_SOCKET_BOOTSTRAP);
        add_sockets("between proxy threads", CW_NCCL_SOCKET_PROXY);
        add_sockets("network setup", CW_NCCL_SOCKET_NETWORK_SETUP);
        add_sockets("RAS (health checks)", CW_NCCL_SOCKET_RAS);
        add("on other queue pairs, possibly counted above too", totals.perhaps_counted_bytes);
        if (!control_text.empty())
            wrapped("  Not part of that: NCCL's control traffic, " + control_text, "  ", "");
        if (nccl_.ops_truncated != 0)
            line(fmt::format("  {} launch(es) had more operations than collwire reads",
                             grouped(nccl_.ops_truncated)));
        unlisted(nccl_.unjoined, "launch(es) of calls that are not in the captures");
        unlisted(nccl_.replays, "replay(s) that are not listed below");
        other_calls();
    }

    // Libraries whose operations are inferred, with the evidence.
    void libraries() {
        std::map<std::pair<std::string, std::string>, std::set<Index>>
            hosts; // by version, evidence
        for (const nccl::Image &image : nccl_.gathered.images)
            if (image.rungs[CW_NCCL_OPERATIONS] == CW_RUNG_INFERRED && !image.basis.empty())
                hosts[{nccl::library_version_text(image.version), image.basis}].insert(
                    model_.sessions[image.session].host);
        std::size_t shown = 0;
        for (const auto &[library, on] : hosts) {
            if (shown == options_.rows)
                break;
            const auto &[version, basis] = library;
            const std::string where = on.size() == 1 ? model_.hosts[*on.begin()].name
                                                     : fmt::format("{} hosts", on.size());
            wrapped("  " + printable(
                               fmt::format("NCCL{}{} on {}: operations are inferred; evidence: {}",
                                           version.empty() ? "" : " ", version, where, basis)),
                    "    ", "");
            ++shown;
        }
        more(hosts.size(), shown, "libraries");
    }

    void other_calls() {
        std::uint64_t n = 0;
        std::set<std::string> names;
        for (const auto &[of, calls] : nccl::other_calls(nccl_)) {
            n += calls;
            names.insert(nccl::func_text(std::get<2>(of)));
        }
        if (n != 0)
            wrapped(fmt::format("  {} call(s) that belong to no operation below: {}", grouped(n),
                                fmt::join(names, ", ")),
                    "  ", "");
    }

    void unlisted(const std::vector<nccl::UnlistedLaunches> &all, std::string_view what) {
        std::uint64_t launches = 0;
        Known payload_bytes = 0;
        for (const nccl::UnlistedLaunches &each : all) {
            launches += each.launches;
            if (!each.payload_bytes)
                payload_bytes.reset();
            else if (payload_bytes)
                model::add_known(payload_bytes, each.payload_bytes);
        }
        if (launches != 0)
            line(fmt::format("  {} {}{}", grouped(launches), what,
                             payload_bytes ? ": " + human_bytes(*payload_bytes) : ""));
    }

    std::string comm_text(Index index) const {
        return fmt::format("{} {}", index,
                           short_comm_label(nccl_.communicators[index], guesses_[index]));
    }

    // `record --budget` took the probes off that record its operations.
    bool outlived_probes(const nccl::Communicator &comm) const {
        return std::ranges::any_of(comm.instances, [this](Index index) {
            const nccl::Instance &instance = nccl_.instances[index];
            const std::uint64_t until_ns =
                model_.sessions[instance.session].counted_until_ns("nccl");
            return until_ns != UINT64_MAX && (instance.end_ns == 0 || instance.end_ns > until_ns);
        });
    }

    void communicators() {
        if (nccl_.communicators.empty())
            return;
        std::vector<std::uint64_t> operations(nccl_.communicators.size());
        std::vector<Known> bytes(nccl_.communicators.size());
        for (const auto *all : {&nccl_.collectives, &nccl_.p2p})
            for (const Operation &operation : *all) {
                ++operations[operation.comm];
                if (operation.has(nccl::OPERATION_PAYLOAD_KNOWN))
                    model::add_known(bytes[operation.comm], operation.payload_bytes);
            }
        for (Index i = 0; i < bytes.size(); ++i)
            if (operations[i] == 0 && !outlived_probes(nccl_.communicators[i]))
                bytes[i] = 0;
        std::vector<Index> order(nccl_.communicators.size());
        for (Index i = 0; i < order.size(); ++i)
            order[i] = i;
        const std::size_t shown = std::min(order.size(), options_.rows);
        if (shown < order.size())
            std::stable_sort(order.begin(), order.end(),
                             [&](Index a, Index b) { return bytes[a] > bytes[b]; });
        title(shown < order.size() ? "Communicators, the most sent first" : "Communicators");
        Table table({{"id", Align::Right},
                     {"hash"},
                     {"name", Align::Left, true, 2},
                     {"ranks", Align::Right},
                     {"captured", Align::Right},
                     {"hosts", Align::Left, true, 3},
                     {"parent", Align::Right, false, 4},
                     {"ops", Align::Right},
                     {"payload", Align::Right}});
        for (std::size_t i = 0; i < shown; ++i) {
            const nccl::Communicator &comm = nccl_.communicators[order[i]];
            std::set<std::int32_t> ranks;
            std::set<std::string> hosts;
            for (const Index instance : comm.instances) {
                ranks.insert(nccl_.instances[instance].record.rank);
                hosts.insert(model_.hosts[nccl_.instances[instance].host].name);
            }
            std::string names;
            for (const std::string &host : hosts)
                names += (names.empty() ? "" : ",") + printable(host);
            table.add({std::to_string(order[i]), nccl::hash_text(comm.hash), name_text(order[i]),
                       std::to_string(comm.n_ranks), std::to_string(ranks.size()), names,
                       comm.parent != NONE ? std::to_string(comm.parent)
                       : comm.parent_known ? "-"
                                           : "?",
                       outlived_probes(comm) ? grouped(operations[order[i]]) + " (incomplete)"
                                             : grouped(operations[order[i]]),
                       human_bytes(bytes[order[i]])});
        }
        text_ += table.text(width_);
        more(order.size(), shown, "communicators");
        guess_evidence();
    }

    std::string name_text(Index index) const {
        const nccl::Communicator &comm = nccl_.communicators[index];
        const std::string mark = roles::guess_mark(guesses_[index]);
        return !comm.name.empty() ? printable(comm.name) : mark.empty() ? "-" : mark;
    }

    // The evidence for one communicator of each guessed role.
    void guess_evidence() {
        std::set<roles::GuessedRole> shown;
        for (const roles::RoleGuess &guess : guesses_)
            if (guess.role != roles::GuessedRole::None && shown.insert(guess.role).second)
                wrapped(fmt::format("  {} is guessed: {}", roles::guess_mark(guess), guess.reason),
                        "    ", "");
    }

    std::map<Kind, KindTotals> kinds() const {
        std::map<Kind, KindTotals> kinds;
        for (const auto *all : {&nccl_.collectives, &nccl_.p2p})
            for (const Operation &operation : *all) {
                // A send is listed with its receive.
                const bool is_pair = operation.source >= 0 || operation.destination >= 0;
                KindTotals &sums =
                    kinds[{groups_.first_of(operation.comm),
                           is_pair ? std::uint8_t{CW_NCCL_SEND_RECV} : operation.func,
                           nccl::size_bytes(operation), operation.algorithm, operation.protocol}];
                ++sums.operations;
                sums.partial += operation.has(nccl::OPERATION_PARTIAL) ? 1 : 0;
                sums.unknown += operation.has(nccl::OPERATION_PAYLOAD_KNOWN) ? 0 : 1;
                sums.payload_bytes =
                    model::add_saturating(sums.payload_bytes, operation.payload_bytes);
                if (operation.has(nccl::OPERATION_WIRE_KNOWN))
                    model::add_known(sums.wire_bytes, operation.wire_bytes);
                // Unknown bytes have no certainty and lower none.
                if (operation.has(nccl::OPERATION_PAYLOAD_KNOWN))
                    sums.rung = std::min(sums.rung, operation.rung);
                if (operation.end_known != nccl::EndKnown::No)
                    sums.durations.emplace_back(operation.most_duration_ns,
                                                operation.least_duration_ns);
                sums.first_ns = std::min(sums.first_ns, operation.called_realtime_ns);
                sums.last_ns = std::max(
                    {sums.last_ns, operation.called_realtime_ns, operation.launched_realtime_ns});
            }
        return kinds;
    }

    void operations() {
        std::map<Kind, KindTotals> all = kinds();
        if (all.empty())
            return;
        std::vector<std::pair<const Kind, KindTotals> *> order;
        order.reserve(all.size());
        for (auto &kind : all)
            order.push_back(&kind);
        std::stable_sort(order.begin(), order.end(), [](const auto *a, const auto *b) {
            return std::pair(a->second.payload_bytes, a->second.operations) >
                   std::pair(b->second.payload_bytes, b->second.operations);
        });
        const std::size_t shown = std::min(order.size(), options_.rows);
        title("Operations, the most sent first");
        const bool all_known =
            std::none_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown),
                         [](const auto *kind) { return kind->second.unknown != 0; });
        bool has_bounds = false;
        Index group = NONE;
        Table table({{"comm", Align::Left, true},
                     {"operation"},
                     {"size", Align::Right},
                     {"algorithm", Align::Left, false, 4},
                     {"protocol", Align::Left, false, 5},
                     {all_known ? "count" : "count (unknown)", Align::Right},
                     {"payload", Align::Right},
                     {"wire bytes", Align::Right, false, 3},
                     {"time", Align::Right, false, 1},
                     {"p99", Align::Right, false, 6},
                     {"certainty"},
                     {"partial", Align::Right, false, 2},
                     {"from", Align::Left, false, 7},
                     {"to", Align::Left, false, 8}});
        for (std::size_t i = 0; i < shown; ++i) {
            auto &[kind, sums] = *order[i];
            const std::string algorithm = nccl::algorithm_text(kind.algorithm);
            const std::string protocol = nccl::protocol_text(kind.protocol);
            const bool is_known = sums.unknown != sums.operations;
            const std::string time = duration_text(sums.durations, 50);
            const std::string p99 = duration_text(sums.durations, 99);
            group = group == NONE && groups_.is_group(kind.comm) ? kind.comm : group;
            has_bounds = has_bounds || time.starts_with('<') || p99.starts_with('<');
            table.add({groups_.title_of(kind.comm), nccl::func_text(kind.func),
                       human_bytes(kind.size_bytes), algorithm.empty() ? "-" : algorithm,
                       protocol.empty() ? "-" : protocol,
                       grouped(sums.operations) +
                           (sums.unknown == 0 ? "" : fmt::format(" ({})", grouped(sums.unknown))),
                       is_known ? human_bytes(sums.payload_bytes) : "n/a",
                       human_bytes(sums.wire_bytes), time, p99,
                       is_known ? std::string(nccl::rung_name(sums.rung)) : "n/a",
                       grouped(sums.partial), utc_time(sums.first_ns), utc_time(sums.last_ns)});
        }
        text_ += table.text(width_);
        if (!all_known)
            wrapped("  (unknown): operations whose bytes are not all known; certainty is that of "
                    "the others",
                    "  ", "");
        if (group != NONE)
            wrapped("  " + groups_.note_on(group), "  ", "");
        if (has_bounds)
            wrapped("  time: `<= 3.3 s` is an upper bound (sampled): connections are read at an "
                    "interval. Record with `--network-times` for measured times",
                    "  ", "");
        more(order.size(), shown, "kinds of operations");
    }

    void matrices() {
        std::map<Index, std::uint64_t> bytes;
        for (const auto &[key, cell] : nccl_.matrix)
            if (key.comm != NONE)
                bytes[key.comm] = model::add_saturating(bytes[key.comm], cell.payload_bytes);
        std::vector<std::pair<std::uint64_t, Index>> order;
        order.reserve(bytes.size());
        for (const auto &[comm, sum] : bytes)
            order.emplace_back(sum, comm);
        std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
            return std::pair(b.first, a.second) < std::pair(a.first, b.second);
        });
        std::size_t shown = 0;
        for (const auto &[sum, comm] : order) {
            if (shown == MATRICES)
                break;
            matrix(comm);
            ++shown;
        }
        more(order.size(), shown, "communicators with bytes between ranks");
    }

    void matrix(Index comm) {
        std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> cells;
        std::set<std::int32_t> ranks;
        for (auto cell = nccl_.matrix.lower_bound({comm, INT32_MIN, INT32_MIN, 0, {}});
             cell != nccl_.matrix.end() && cell->first.comm == comm; ++cell) {
            const auto &[key, of] = *cell;
            std::uint64_t &sum = cells[{key.source, key.destination}];
            sum = model::add_saturating(sum, of.payload_bytes);
            ranks.insert({key.source, key.destination});
        }
        title(fmt::format("Sent between ranks of communicator {}, payload", comm_text(comm)));
        const std::size_t needed = 12 + ranks.size() * 13;
        if (static_cast<std::int32_t>(ranks.size()) <= MATRIX_RANKS && needed <= width_) {
            std::vector<Column> columns = {{"from \\ to", Align::Left}};
            for (const std::int32_t rank : ranks)
                columns.push_back({rank_text(rank), Align::Right});
            Table table(columns);
            for (const std::int32_t from : ranks) {
                std::vector<std::string> row = {rank_text(from)};
                for (const std::int32_t to : ranks) {
                    const auto found = cells.find({from, to});
                    row.push_back(found == cells.end() ? "" : human_bytes(found->second));
                }
                table.add(std::move(row));
            }
            text_ += table.text(width_);
            return;
        }
        std::vector<std::pair<std::uint64_t, std::pair<std::int32_t, std::int32_t>>> order;
        order.reserve(cells.size());
        for (const auto &[pair, sum] : cells)
            order.emplace_back(sum, pair);
        std::stable_sort(order.begin(), order.end(),
                         [](const auto &a, const auto &b) { return a.first > b.first; });
        const std::size_t shown = std::min(order.size(), options_.rows);
        Table table({{"from", Align::Right}, {"to", Align::Right}, {"payload", Align::Right}});
        for (std::size_t i = 0; i < shown; ++i)
            table.add({rank_text(order[i].second.first), rank_text(order[i].second.second),
                       human_bytes(order[i].first)});
        text_ += table.text(width_);
        more(order.size(), shown, "pairs of ranks");
    }

    const Model &model_;
    const nccl::NcclFacts &nccl_;
    const std::vector<roles::RoleGuess> &guesses_;
    const CommGroups groups_;
};

} // namespace

std::string nccl_text(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                      const TextOptions &options) {
    return NcclTextWriter(model, guesses, options).run();
}

} // namespace collwire::report
