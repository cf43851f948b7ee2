// SPDX-License-Identifier: Apache-2.0
#include "correlate/inspect/text.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/inspect/job_text.h"
#include "correlate/inspect/waits.h"
#include "correlate/model/meaning.h"
#include "correlate/report/table.h"
#include "correlate/report/units.h"

namespace collwire::inspect {
namespace {

using report::Align;
using report::printable;
using report::Table;

std::string rank_text(std::int32_t rank) {
    return rank < 0 ? "-" : fmt::format("{}", rank);
}

std::string ms_text(const std::optional<std::uint64_t> &ns) {
    return ns ? fmt::format("{:.1f} ms", static_cast<double>(*ns) / 1e6) : "-";
}

std::string count_text(const std::optional<std::uint64_t> &count) {
    return count ? report::grouped(*count) : "-";
}

std::string name_of(const Communicator &comm) {
    return comm.name.empty() ? fmt::format("{:#018x}", comm.hash) : printable(comm.name);
}

// Of the communicators that share this proxy.
std::string names_of(const Process &process, const Proxy &proxy) {
    std::string names;
    for (const Communicator &comm : process.communicators)
        if (comm.proxy_state == proxy.address)
            names += (names.empty() ? "" : ", ") + name_of(comm);
    return names.empty() ? "?" : names;
}

std::string state_of(const Communicator &comm) {
    std::string text = comm.async_result.empty() ? "?" : comm.async_result;
    for (const auto &[flag, word] :
         {std::pair{comm.is_aborted, "aborted"}, std::pair{comm.is_revoked, "revoked"},
          std::pair{comm.is_finalized, "finalized"},
          std::pair{comm.is_destroyed, "being destroyed"}})
        if (flag == true)
            text += fmt::format(", {}", word);
    return text;
}

std::string through(const Transfer &transfer) {
    std::string text = transfer.transport;
    std::size_t n = 0;
    for (const Endpoint &endpoint : transfer.endpoints) {
        if (endpoint.role == "flush" || n == 2)
            continue;
        ++n;
        if (endpoint.is_socket)
            text += endpoint.remote.empty()
                        ? fmt::format(" fd {}", endpoint.number)
                        : fmt::format(" {} {}", endpoint.remote, endpoint.state);
        else
            text +=
                fmt::format(" {}{}{}", endpoint.device.empty() ? "qp " : endpoint.device + "/",
                            endpoint.number, endpoint.state.empty() ? "" : " " + endpoint.state);
    }
    if (transfer.endpoints.size() > 2)
        text += " ...";
    return printable(text);
}

class InspectionTextWriter {
public:
    InspectionTextWriter(const Inspection &inspection, const TextOptions &options)
        : inspection_(inspection), options_(options) {}

    std::string text() {
        line(fmt::format("collwire inspect: {}, {} process(es), two samples {} ms apart, {}",
                         printable(inspection_.host), inspection_.processes.size(),
                         inspection_.between_ns / 1'000'000,
                         report::utc(inspection_.realtime_ns).substr(0, 19) + "Z"));
        for (const Process &process : inspection_.processes)
            put(process);
        put_ports();
        return std::move(text_);
    }

private:
    void line(const std::string &text) { text_ += text + "\n"; }

    void table(const Table &table, std::string_view title) {
        if (table.empty())
            return;
        line(fmt::format("  {}", title));
        std::string rows = table.text(options_.width - 2);
        std::size_t at = 0;
        while (at < rows.size()) {
            const std::size_t end = rows.find('\n', at);
            line("  " + rows.substr(at, end - at));
            at = end + 1;
        }
    }
    void more(std::size_t all, std::size_t shown, std::string_view what) {
        if (all > shown)
            line(fmt::format("    ... and {} more {}: see --json", all - shown, what));
    }
    [[nodiscard]] std::size_t rows() const { return options_.rows == 0 ? SIZE_MAX : options_.rows; }

    void put(const Process &process) {
        line("");
        std::string head = fmt::format("pid {}", process.pid);
        if (process.namespace_pid != 0 && process.namespace_pid != process.pid)
            head += fmt::format(" ({} inside)", process.namespace_pid);
        if (!process.command.empty())
            head += "  " + printable(process.command);
        if (const std::string job = job_text(process); !job.empty())
            head += fmt::format("  ({})", printable(job));
        line(head);
        for (const Library &library : process.libraries)
            line(
                fmt::format("  NCCL {}  {}  ({})", library.version.empty() ? "?" : library.version,
                            printable(library.path),
                            library.problem.empty() ? library.source : printable(library.problem)));
        for (const Network &network : process.networks)
            line(fmt::format("  network plugin {}  {}  ({} connection ends)",
                             network.plugin.empty() ? "?" : printable(network.plugin),
                             network.file.empty() ? "file unknown" : printable(network.file),
                             network.n_connections));
        if (!process.problem.empty())
            line("  " + printable(process.problem));
        for (const UnreadyComm &comm : process.unready)
            put_unready(process, comm);
        for (const NcclCall &call : process.calls)
            put_call(process, call);
        for (const BootstrapRoot &root : process.roots)
            line(fmt::format("  bootstrap root of a new communicator{}: waits for further ranks "
                             "(thread {})",
                             root.n_ranks == 0 ? std::string{}
                                               : fmt::format(" of {} ranks", root.n_ranks),
                             root.tid));
        if (process.problem.empty() && process.communicators.empty() && process.unready.empty())
            line(process.was_scanned
                     ? "  no communicators: neither in NCCL's own list nor found in its memory"
                     : "  no communicators");
        for (const Proxy &proxy : process.proxies)
            line(fmt::format("  => {} (rank {}): {}{}", names_of(process, proxy),
                             rank_text(proxy.rank), sentence_of(standing_of(proxy, process)),
                             proxy.async_result.empty() || proxy.async_result == "ncclSuccess"
                                 ? ""
                                 : "; its proxy thread failed with " + proxy.async_result));
        if (!process.last_error.empty())
            line("  NCCL's last warning: " + printable(process.last_error));
        put_communicators(process);
        put_operations(process);
        put_threads(process);
        if (process.is_cut)
            line("  incomplete: the process has more than collwire reads");
    }

    // A communicator of the process, by its address.
    static std::string name_at(const Process &process, std::uint64_t address) {
        for (const Communicator &comm : process.communicators)
            if (comm.address == address)
                return name_of(comm);
        for (const UnreadyComm &comm : process.unready)
            if (comm.address == address)
                return name_of(comm);
        return {};
    }
    static std::string name_of(const UnreadyComm &comm) {
        const std::uint64_t number = comm.hash != 0 ? comm.hash : comm.magic;
        return number == 0 ? "a new communicator" : fmt::format("{:#018x}", number);
    }
    static std::string name_of(const Communicator &comm) { return inspect::name_of(comm); }

    void put_unready(const Process &process, const UnreadyComm &comm) {
        std::string made = "  => " + name_of(comm);
        if (comm.n_ranks != 0)
            made += fmt::format(" (rank {} of {})", comm.rank, comm.n_ranks);
        if (const std::string parent = name_at(process, comm.parent); !parent.empty())
            made += ", child of " + parent;
        made += ": is being made, and not ready: it " + sentence_of(comm);
        if (!comm.root.empty())
            made += "; bootstrap root at " + printable(comm.root);
        made += comm.for_ns ? fmt::format("; since {} s", *comm.for_ns / 1'000'000'000)
                            : "; since when is not known";
        line(printable(made));
    }

    void put_call(const Process &process, const NcclCall &call) {
        std::string text = fmt::format("  thread {} is in {}", call.tid,
                                       call.function.empty() ? "NCCL" : call.function + "()");
        if (const std::string name = name_at(process, call.comm); !name.empty())
            text += " of " + name;
        if (!call.inside.empty())
            text += fmt::format(": {}", fmt::join(call.inside, " < "));
        line(printable(text));
    }

    void put_communicators(const Process &process) {
        Table rows_of({{"communicator"},
                       {"rank", Align::Right},
                       {"ranks", Align::Right},
                       {"nodes", Align::Right},
                       {"GPU", Align::Right},
                       {"bus", Align::Left, false, 2},
                       {"channels", Align::Right, false, 1},
                       {"launched", Align::Right},
                       {"state"}});
        for (const Communicator &comm : process.communicators)
            rows_of.add({name_of(comm), rank_text(comm.rank), fmt::format("{}", comm.n_ranks),
                         fmt::format("{}", comm.n_nodes), rank_text(comm.device),
                         comm.bus_id.empty() ? "-" : comm.bus_id,
                         fmt::format("{}", comm.rings.size()), count_text(comm.launched),
                         state_of(comm)});
        table(rows_of, "communicators");
    }

    void put_operations(const Process &process) {
        Table table_of({{"communicator"},
                        {"operation"},
                        {"algorithm"},
                        {"protocol"},
                        {"ch", Align::Right},
                        {"dir"},
                        {"peer", Align::Right},
                        {"steps", Align::Right},
                        {"posted", Align::Right},
                        {"received", Align::Right, false, 1},
                        {"sent", Align::Right},
                        {"done", Align::Right},
                        {"waits for"},
                        {"through", Align::Left, true, 2}});
        std::size_t n = 0;
        const auto dash = [](const std::string &text) { return text.empty() ? "-" : text; };
        for (const Proxy &proxy : process.proxies)
            for (const Operation &operation : proxy.operations)
                for (const Transfer &transfer : operation.transfers) {
                    if (n++ >= rows())
                        continue;
                    const auto number = [](std::uint64_t value) {
                        return fmt::format("{}", value);
                    };
                    table_of.add({names_of(process, proxy), dash(operation.function),
                                  dash(operation.algorithm), dash(operation.protocol),
                                  rank_text(transfer.channel), transfer.is_send ? "send" : "recv",
                                  rank_text(transfer.peer), number(transfer.nsteps),
                                  number(transfer.last.posted),
                                  transfer.is_send ? "-" : number(transfer.last.received),
                                  number(transfer.last.transmitted), number(transfer.last.done),
                                  std::string{wait_name(transfer.wait)}, through(transfer)});
                }
        if (!table_of.empty())
            line("  ch: channel; steps: all of this operation; posted to done: steps so far");
        table(table_of, "operations in flight");
        more(n, rows(), "operations on connections");
    }

    void put_threads(const Process &process) {
        Table table_of({{"tid", Align::Right},
                        {"name"},
                        {"role"},
                        {"state"},
                        {"ran", Align::Right},
                        {"waited for CPU", Align::Right},
                        {"waits in", Align::Left, true}});
        for (const Thread &thread : process.threads) {
            std::string in = thread.wait_channel;
            if (!thread.stack.empty() && thread.state == 'D')
                in = fmt::format("{}", fmt::join(thread.stack, " < "));
            table_of.add({fmt::format("{}", thread.tid), printable(thread.name),
                          thread.role.empty() ? "-" : thread.role, std::string(1, thread.state),
                          ms_text(thread.run_ns), ms_text(thread.runnable_ns),
                          in.empty() ? "-" : printable(in)});
        }
        table(table_of, fmt::format("relevant threads, of {}", process.n_threads));
        if (process.throttling && process.throttling->throttled_ns != 0)
            line(fmt::format(
                "  throttled: cgroup {} for {} in {} periods: its CPU limit stops the threads",
                printable(process.throttling->cgroup), ms_text(process.throttling->throttled_ns),
                process.throttling->periods));
    }

    void put_ports() {
        Table table_of({{"device"},
                        {"port", Align::Right},
                        {"netdev"},
                        {"state"},
                        {"sent", Align::Right},
                        {"received", Align::Right},
                        {"errors between the samples", Align::Left, true}});
        const auto bytes = [](const std::optional<std::uint64_t> &value) {
            return value ? report::human_bytes(*value) : "-";
        };
        for (const Port &port : inspection_.ports) {
            std::string errors;
            for (const Port::Change &change : port.changes)
                if (model::meaning_of(change.counter) != model::CounterMeaning::None)
                    errors += fmt::format("{}{} +{}", errors.empty() ? "" : ", ",
                                          printable(change.counter), change.by);
            table_of.add({printable(port.device), fmt::format("{}", port.port),
                          port.netdev.empty() ? "-" : printable(port.netdev),
                          port.state.empty() ? "-" : port.state, bytes(port.tx_bytes),
                          bytes(port.rx_bytes), errors.empty() ? "-" : errors});
        }
        if (table_of.empty())
            return;
        line("");
        line("ports");
        text_ += table_of.text(options_.width);
    }

    const Inspection &inspection_;
    const TextOptions &options_;
    std::string text_;
};

} // namespace

std::string render_text(const Inspection &inspection, const TextOptions &options) {
    return InspectionTextWriter{inspection, options}.text();
}

} // namespace collwire::inspect
