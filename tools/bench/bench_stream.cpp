// SPDX-License-Identifier: Apache-2.0
// How fast captures are read as a stream, and how much memory that takes: the reader alone, which
// is the limit, and with the operations. With --rows: prints the operations, for tests.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/clock.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/stream/lockstep.h"
#include "correlate/stream/world.h"
#include "tools/program_options/program_options.h"

namespace {

using namespace collwire;

struct Figures {
    std::uint64_t records = 0;
    std::uint64_t operations = 0;
    double seconds = 0;
};

stream::ReadAt reader_of(const std::string &path) {
    // Opened for each block: there may be more captures than descriptors.
    return [path](std::uint64_t offset_bytes, std::span<std::byte> into) -> Result<std::size_t> {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const ssize_t got =
            file < 0 ? -1 : pread(file, into.data(), into.size(), static_cast<off_t>(offset_bytes));
        if (file >= 0)
            close(file);
        if (got < 0)
            return error(ErrorKind::Failed, fmt::format("{}: cannot be read", path));
        return static_cast<std::size_t>(got);
    };
}

std::vector<std::string> captures_of(const std::vector<std::string> &paths) {
    std::vector<std::string> found;
    for (const std::string &path : paths)
        if (std::filesystem::is_directory(path)) {
            for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
                if (entry.path().extension() == ".cwc")
                    found.push_back(entry.path());
        } else {
            found.push_back(path);
        }
    return found;
}

double cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

void print_row(const stream::Communicator &communicator, const stream::Operation &operation) {
    fmt::print("{{\"hash\":\"{:#018x}\",\"id\":{},\"number\":{},\"source\":{},\"destination\":{},"
               "\"op\":\"{}\",\"size_bytes\":{},\"calls\":{},\"launches\":{},\"last_rank\":{},"
               "\"first_call_ns\":{},\"last_call_ns\":{},\"payload_bytes\":{},\"data_bytes\":{},"
               "\"messages\":{},\"algorithm\":\"{}\",\"protocol\":\"{}\",\"lacks\":{},"
               "\"differs\":{}}}\n",
               communicator.hash, communicator.id, operation.number, operation.source,
               operation.destination, capture::nccl_func_name(operation.func),
               operation.count * capture::nccl_datatype_bytes(operation.datatype), operation.calls,
               operation.launches, operation.last_rank, operation.first_call_ns,
               operation.last_call_ns, operation.payload_bytes, operation.data_bytes,
               operation.messages, capture::nccl_algorithm_name(operation.algorithm),
               capture::nccl_protocol_name(operation.protocol), operation.lacks, operation.differs);
}

stream::Lockstep open_all(const std::vector<std::string> &paths, stream::Pace *pace) {
    stream::Lockstep lockstep(pace);
    for (const std::string &path : paths) {
        auto opened = stream::RecordStream::open(reader_of(path));
        if (opened)
            lockstep.add(std::move(*opened));
        else
            fmt::print(stderr, "{}: {}\n", path, opened.failure().message);
    }
    return lockstep;
}

Figures count(const std::vector<std::string> &paths) {
    Figures figures;
    const double begin_s = cpu_s();
    stream::Lockstep lockstep = open_all(paths, nullptr);
    while (lockstep.load() != lockstep.size())
        lockstep.visit([&](const cw_header &, std::span<const std::byte>) { ++figures.records; });
    figures.seconds = cpu_s() - begin_s;
    return figures;
}

Figures track(const std::vector<std::string> &paths, bool prints_rows) {
    Figures figures;
    const double begin_s = cpu_s();
    stream::World world(
        [&](const stream::Communicator &communicator, const stream::Operation &operation) {
            ++figures.operations;
            if (prints_rows)
                print_row(communicator, operation);
        });
    stream::Lockstep lockstep = open_all(paths, &world);
    for (std::size_t at; (at = lockstep.load()) != lockstep.size();)
        lockstep.visit([&](const cw_header &header, std::span<const std::byte> record) {
            ++figures.records;
            world.add(at, header, record);
        });
    world.flush();
    figures.seconds = cpu_s() - begin_s;
    if (!prints_rows) {
        const auto counts = world.counts();
        fmt::print("not joined: {} records without a communicator, {} tasks without a call, {} "
                   "late calls, {} operations cut at the horizon, {} abandoned waits; {} launches "
                   "of graphs after their first\n",
                   counts.orphans, counts.unmatched, counts.late, counts.cut, counts.abandoned,
                   counts.replays);
    }
    return figures;
}

void print(const char *what, const Figures &figures) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("{:<12} {:>12} records {:>8.2f} s of CPU {:>12.0f} records/s {:>10} operations "
               "{:>7} MiB peak\n",
               what, figures.records, figures.seconds,
               static_cast<double>(figures.records) / std::max(figures.seconds, 1e-6),
               figures.operations, usage.ru_maxrss / 1024);
}

} // namespace

int main(int argc, char **argv) {
    std::vector<std::string> paths;
    bool rows = false;
    ProgramOptions program("Reads captures as a stream.");
    program.add("paths", paths, "captures, or directories of them").required();
    program.add("--rows", rows, "print the operations as JSON, one a line");
    if (const auto status = program.parse(argc, argv))
        return *status;
    const std::vector<std::string> files = captures_of(paths);
    if (rows) {
        track(files, true);
        return 0;
    }
    print("reader", count(files));
    print("operations", track(files, false));
    return 0;
}
