// SPDX-License-Identifier: Apache-2.0
// A profiler plugin for NCCL (NCCL_PROFILER_PLUGIN), for tests alone: writes what NCCL reports to
// it of collectives, sends and receives to the file COLLWIRE_PROFILER_LOG.PID, a JSON object a
// line. Version 5 of the interface (NCCL 2.28 and later); of what NCCL hands over only what is read
// here is declared.
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr std::uint64_t kCollective = 1U << 1U;
constexpr std::uint64_t kTransfer = 1U << 2U;

struct Collective {
    std::uint64_t sequence; // of this function on the communicator
    const char *function;
    const void *from;
    void *to;
    std::size_t count;
    int root;
    const char *datatype;
    std::uint8_t channels;
    std::uint8_t warps;
    const char *algorithm;
    const char *protocol;
};

struct Transfer {
    const char *function;
    void *buffer;
    const char *datatype;
    std::size_t count;
    int peer;
    std::uint8_t channels;
};

struct Event {
    std::uint64_t type;
    void *parent;
    int rank;
    union {
        Collective collective;
        Transfer transfer;
    };
};

struct Plugin {
    const char *name;
    int (*init)(void **context, std::uint64_t hash, int *wanted, const char *name, int nodes,
                int ranks, int rank, void *log);
    int (*start)(void *context, void **handle, Event *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

struct Communicator {
    std::uint64_t hash;
    int rank;
    int ranks;
};

std::mutex g_mutex;

std::string text_of(const char *text) {
    return text != nullptr ? fmt::format("\"{}\"", text) : "null";
}

void write(const std::string &line) {
    static std::FILE *const file = [] {
        const char *path = std::getenv("COLLWIRE_PROFILER_LOG");
        return path != nullptr ? std::fopen(fmt::format("{}.{}", path, ::getpid()).c_str(), "w")
                               : nullptr;
    }();
    if (file == nullptr)
        return;
    std::fwrite(line.data(), 1, line.size(), file);
    std::fflush(file);
}

int init(void **context, std::uint64_t hash, int *wanted, const char *name, int nodes, int ranks,
         int rank, void *) {
    const std::lock_guard lock(g_mutex);
    *context = new Communicator{hash, rank, ranks};
    *wanted = static_cast<int>(kCollective | kTransfer);
    write(fmt::format(
        R"({{"event":"communicator","hash":"{:#018x}","rank":{},"ranks":{},"nodes":{},"name":{}}})"
        "\n",
        hash, rank, ranks, nodes, text_of(name)));
    return kSuccess;
}

int start(void *context, void **handle, Event *event) {
    const std::lock_guard lock(g_mutex);
    const Communicator &comm = *static_cast<Communicator *>(context);
    *handle = nullptr;
    const std::string place =
        fmt::format(R"("hash":"{:#018x}","rank":{},"ranks":{})", comm.hash, comm.rank, comm.ranks);
    if (event->type == kCollective) {
        const Collective &collective = event->collective;
        write(fmt::format(
            R"({{"event":"collective",{},"sequence":{},"op":{},"count":{},"datatype":{},"root":{},)"
            R"("channels":{},"algorithm":{},"protocol":{}}})"
            "\n",
            place, collective.sequence, text_of(collective.function), collective.count,
            text_of(collective.datatype), collective.root, collective.channels,
            text_of(collective.algorithm), text_of(collective.protocol)));
    } else if (event->type == kTransfer) {
        const Transfer &transfer = event->transfer;
        write(fmt::format(
            R"({{"event":"transfer",{},"op":{},"count":{},"datatype":{},"peer":{},"channels":{}}})"
            "\n",
            place, text_of(transfer.function), transfer.count, text_of(transfer.datatype),
            transfer.peer, transfer.channels));
    }
    return kSuccess;
}

int stop(void *) {
    return kSuccess;
}

int record(void *, int, void *) {
    return kSuccess;
}

int finalize(void *context) {
    delete static_cast<Communicator *>(context);
    return kSuccess;
}

} // namespace

// The name is NCCL's.
extern "C" __attribute__((visibility("default")))
const Plugin ncclProfiler_v5 = {"collwire-test", &init, &start, &stop, &record, &finalize};
