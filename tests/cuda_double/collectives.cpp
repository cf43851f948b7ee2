// SPDX-License-Identifier: Apache-2.0
// A rank of a test job: runs operations through NCCL's own API and checks every element.
//
// collectives --rank R --ranks N --id file:PATH|tcp:HOST:PORT [--device D] [--operations A,B,...]
//             [--from BYTES] [--to BYTES] [--factor F] [--iterations N] [--no-check]
#include <fmt/format.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda_double/fakecuda/cuda_runtime.h"
#include "tests/cuda_double/rendezvous.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    std::string id;
    std::vector<std::string> operations = {"allreduce"};
    std::size_t from_bytes = 8;
    std::size_t to_bytes = 1 << 20;
    std::size_t factor = 8;
    int iterations = 1;
    bool checks = true;
};

void require_cuda(cudaError_t error, const char *what) {
    if (error != cudaSuccess)
        give_up(
            fmt::format("{}: CUDA error {}. Fix: COLLWIRE_CUDA_VERBOSE=1 shows more", what, error));
}

std::size_t wrong_elements = 0;
bool checks_elements = true;

template <class T> class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : count_(count) {
        void *memory = nullptr;
        require_cuda(cudaMalloc(&memory, std::max<std::size_t>(count, 1) * sizeof(T)),
                     "cudaMalloc");
        begin_ = static_cast<T *>(memory);
    }
    ~DeviceArray() { cudaFree(begin_); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    [[nodiscard]] T *data() const { return begin_; }
    T &operator[](std::size_t i) const { return begin_[i]; }
    void fill(T value) const { std::fill_n(begin_, count_, value); }

private:
    std::size_t count_;
    T *begin_ = nullptr;
};
using Floats = DeviceArray<float>;

using Expected = std::function<float(std::size_t)>;

void expect(const char *what, const float *values, std::size_t count, const Expected &expected) {
    for (std::size_t i = 0; checks_elements && i < count; i++) {
        const float wanted = expected(i);
        // Averages are rounded; all else is small integers.
        if (std::abs(values[i] - wanted) <=
            1e-3F * std::abs(wanted) * (wanted != std::floor(wanted)))
            continue;
        if (wrong_elements++ < 5)
            fmt::print(stderr, "{}: element {} of {} is {}, wanted {}\n", what, i, count, values[i],
                       wanted);
    }
}

class Communicator {
public:
    Communicator(int rank, int ranks) : rank_(rank), ranks_(ranks) {
        require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                     "cudaStreamCreate");
    }
    ~Communicator() {
        if (communicator_ != nullptr)
            require(ncclCommDestroy(communicator_), "ncclCommDestroy");
        require_cuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
    }
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;

    ncclComm_t *handle() { return &communicator_; }
    [[nodiscard]] ncclComm_t get() const { return communicator_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    void wait() const { require_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

private:
    int rank_;
    int ranks_;
    ncclComm_t communicator_ = nullptr;
    cudaStream_t stream_ = nullptr;
};

// Small integers, so that sums of floats are exact.
float input_of(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

// One operation on `count` floats a rank.
class Round {
public:
    Round(const Communicator &communicator, std::size_t count, int root)
        : comm_(communicator), count_(count), ranks_(static_cast<std::size_t>(comm_.ranks())),
          root_(root), in_(count * ranks_), out_(count * ranks_) {
        for (std::size_t i = 0; i < count * ranks_; i++)
            in_[i] = input_of(comm_.rank(), i);
        out_.fill(-1);
    }

    void all_reduce() {
        require(all_reduce_into(out_.data(), count_, ncclSum), "ncclAllReduce");
        comm_.wait();
        expect("allreduce", out_.data(), count_, sum());
    }
    void all_reduce_in_place() {
        require(all_reduce_into(in_.data(), count_, ncclSum), "ncclAllReduce");
        comm_.wait();
        expect("inplace", in_.data(), count_, sum());
    }
    void all_reduce_max() {
        require(all_reduce_into(out_.data(), count_, ncclMax), "ncclAllReduce");
        comm_.wait();
        expect("max", out_.data(), count_, max());
    }
    void all_reduce_avg() {
        require(all_reduce_into(out_.data(), count_, ncclAvg), "ncclAllReduce");
        comm_.wait();
        expect("avg", out_.data(), count_,
               [this](std::size_t i) { return sum()(i) / static_cast<float>(ranks_); });
    }
    void all_gather() {
        require(all_gather_into(out_.data()), "ncclAllGather");
        comm_.wait();
        expect("allgather", out_.data(), count_ * ranks_, gathered());
    }
    void reduce_scatter() {
        require(reduce_scatter_into(out_.data()), "ncclReduceScatter");
        comm_.wait();
        expect("reducescatter", out_.data(), count_, scattered());
    }
    void broadcast() {
        require(ncclBroadcast(in_.data(), out_.data(), count_, ncclFloat32, root_, comm_.get(),
                              comm_.stream()),
                "ncclBroadcast");
        comm_.wait();
        expect("broadcast", out_.data(), count_,
               [this](std::size_t i) { return input_of(root_, i); });
    }
    void reduce() {
        require(ncclReduce(in_.data(), out_.data(), count_, ncclFloat32, ncclSum, root_,
                           comm_.get(), comm_.stream()),
                "ncclReduce");
        comm_.wait();
        if (comm_.rank() == root_)
            expect("reduce", out_.data(), count_, sum());
    }
    void send_recv() {
        const int next = (comm_.rank() + 1) % comm_.ranks();
        const int previous = (comm_.rank() + comm_.ranks() - 1) % comm_.ranks();
        in_group([&] {
            send(in_.data(), next);
            receive(out_.data(), previous);
        });
        expect("sendrecv", out_.data(), count_,
               [=](std::size_t i) { return input_of(previous, i); });
    }
    void all_to_all() {
        in_group([&] {
            for (int peer = 0; peer < comm_.ranks(); peer++) {
                send(in_.data() + static_cast<std::size_t>(peer) * count_, peer);
                receive(out_.data() + static_cast<std::size_t>(peer) * count_, peer);
            }
        });
        expect("alltoall", out_.data(), count_ * ranks_, [this](std::size_t i) {
            const auto own = static_cast<std::size_t>(comm_.rank()) * count_;
            return input_of(static_cast<int>(i / count_), own + i % count_);
        });
    }
    // Different operations in one launch.
    void group() {
        const std::size_t half = (count_ + 1) / 2;
        const Floats gathered_out(count_ * ranks_);
        const Floats max_out(half);
        const Floats scattered_out(count_);
        in_group([&] {
            require(all_reduce_into(out_.data(), count_, ncclSum), "ncclAllReduce");
            require(all_gather_into(gathered_out.data()), "ncclAllGather");
            require(all_reduce_into(max_out.data(), half, ncclMax), "ncclAllReduce");
            require(reduce_scatter_into(scattered_out.data()), "ncclReduceScatter");
        });
        expect("group: allreduce", out_.data(), count_, sum());
        expect("group: allgather", gathered_out.data(), count_ * ranks_, gathered());
        expect("group: max", max_out.data(), half, max());
        expect("group: reducescatter", scattered_out.data(), count_, scattered());
    }
    // One broadcast for each root.
    void broadcast_group() {
        in_group([&] {
            for (int root = 0; root < comm_.ranks(); root++)
                require(ncclBroadcast(in_.data(),
                                      out_.data() + static_cast<std::size_t>(root) * count_, count_,
                                      ncclFloat32, root, comm_.get(), comm_.stream()),
                        "ncclBroadcast");
        });
        expect("bcastgroup", out_.data(), count_ * ranks_, gathered());
    }
    // Captured once, replayed three times.
    void capture() {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        require_cuda(cudaStreamBeginCapture(comm_.stream(), cudaStreamCaptureModeThreadLocal),
                     "cudaStreamBeginCapture");
        require(all_reduce_into(out_.data(), count_, ncclSum), "ncclAllReduce");
        require_cuda(cudaStreamEndCapture(comm_.stream(), &graph), "cudaStreamEndCapture");
        require_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
        for (int replay = 0; replay < 3; replay++) {
            out_.fill(-1);
            require_cuda(cudaGraphLaunch(executable, comm_.stream()), "cudaGraphLaunch");
            comm_.wait();
            expect("capture", out_.data(), count_, sum());
        }
        require_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
        require_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }

private:
    ncclResult_t all_reduce_into(float *out, std::size_t count, ncclRedOp_t op) {
        return ncclAllReduce(in_.data(), out, count, ncclFloat32, op, comm_.get(), comm_.stream());
    }
    ncclResult_t all_gather_into(float *out) {
        return ncclAllGather(in_.data(), out, count_, ncclFloat32, comm_.get(), comm_.stream());
    }
    ncclResult_t reduce_scatter_into(float *out) {
        return ncclReduceScatter(in_.data(), out, count_, ncclFloat32, ncclSum, comm_.get(),
                                 comm_.stream());
    }
    void send(const float *from, int peer) {
        require(ncclSend(from, count_, ncclFloat32, peer, comm_.get(), comm_.stream()), "ncclSend");
    }
    void receive(float *to, int peer) {
        require(ncclRecv(to, count_, ncclFloat32, peer, comm_.get(), comm_.stream()), "ncclRecv");
    }
    template <class Call> void in_group(Call call) {
        require(ncclGroupStart(), "ncclGroupStart");
        call();
        require(ncclGroupEnd(), "ncclGroupEnd");
        comm_.wait();
    }

    [[nodiscard]] Expected sum() const {
        return [this](std::size_t i) {
            float total = 0;
            for (int rank = 0; rank < comm_.ranks(); rank++)
                total += input_of(rank, i);
            return total;
        };
    }
    [[nodiscard]] Expected max() const {
        return [this](std::size_t i) {
            float most = 0;
            for (int rank = 0; rank < comm_.ranks(); rank++)
                most = std::max(most, input_of(rank, i));
            return most;
        };
    }
    [[nodiscard]] Expected gathered() const {
        return [this](std::size_t i) { return input_of(static_cast<int>(i / count_), i % count_); };
    }
    [[nodiscard]] Expected scattered() const {
        return [this](std::size_t i) {
            return sum()(i + static_cast<std::size_t>(comm_.rank()) * count_);
        };
    }

    const Communicator &comm_;
    std::size_t count_;
    std::size_t ranks_;
    int root_;
    Floats in_;
    Floats out_;
};

template <class T>
void check_type(const Communicator &comm, ncclDataType_t type, std::size_t count) {
    const DeviceArray<T> in(count);
    const DeviceArray<T> out(count);
    // Ones and twos, so that the product of many ranks is exact in 16 bits.
    const auto value = [](int rank, std::size_t i) {
        return static_cast<T>((i + static_cast<std::size_t>(rank)) % 2 + 1);
    };
    for (std::size_t i = 0; i < count; i++)
        in[i] = value(comm.rank(), i);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg}) {
        require(ncclAllReduce(in.data(), out.data(), count, type, op, comm.get(), comm.stream()),
                "ncclAllReduce");
        comm.wait();
        for (std::size_t i = 0; i < count; i++) {
            double wanted = static_cast<double>(value(0, i));
            for (int rank = 1; rank < comm.ranks(); rank++) {
                const auto other = static_cast<double>(value(rank, i));
                wanted = op == ncclProd  ? wanted * other
                         : op == ncclMin ? std::min(wanted, other)
                         : op == ncclMax ? std::max(wanted, other)
                                         : wanted + other;
            }
            if constexpr (std::is_integral_v<T>) // products of many ranks wrap
                wanted = static_cast<double>(static_cast<T>(static_cast<std::int64_t>(wanted)));
            if (op == ncclAvg)
                wanted /= comm.ranks();
            // Integers lose the fraction of an average.
            const double slack = op == ncclAvg ? 0.999 : 0;
            const double got = static_cast<double>(out[i]);
            if (std::abs(got - wanted) > slack && wrong_elements++ < 5)
                fmt::print(stderr, "type {} operator {}: element {} is {}, wanted {}\n",
                           static_cast<int>(type), static_cast<int>(op), i, got, wanted);
        }
    }
}

void check_types(const Communicator &comm) {
    check_type<std::int8_t>(comm, ncclInt8, 1000);
    check_type<std::uint8_t>(comm, ncclUint8, 1001);
    check_type<std::int32_t>(comm, ncclInt32, 5000);
    check_type<std::uint32_t>(comm, ncclUint32, 77);
    check_type<std::int64_t>(comm, ncclInt64, 5001);
    check_type<std::uint64_t>(comm, ncclUint64, 3);
    __extension__ using Half = _Float16;
    check_type<Half>(comm, ncclFloat16, 4099);
    check_type<float>(comm, ncclFloat32, 4097);
    check_type<double>(comm, ncclFloat64, 9999);
}

// Even and odd ranks get a communicator each, and the first one stays in use.
void check_split(const Communicator &comm) {
    const int color = comm.rank() % 2;
    Communicator half(comm.rank() / 2, (comm.ranks() - color + 1) / 2);
    require(ncclCommSplit(comm.get(), color, comm.rank(), half.handle(), nullptr), "ncclCommSplit");
    Round(half, 4096, 0).all_reduce();
    Round(comm, 1000, 0).all_reduce();
    Round(half, 4096, 0).all_gather();
    Round(half, 4096, 0).all_to_all();
}

using RunRound = void (Round::*)();
const std::map<std::string, RunRound> kRounds = {
    {"allreduce", &Round::all_reduce}, {"inplace", &Round::all_reduce_in_place},
    {"max", &Round::all_reduce_max},   {"avg", &Round::all_reduce_avg},
    {"allgather", &Round::all_gather}, {"reducescatter", &Round::reduce_scatter},
    {"broadcast", &Round::broadcast},  {"reduce", &Round::reduce},
    {"sendrecv", &Round::send_recv},   {"alltoall", &Round::all_to_all},
    {"group", &Round::group},          {"bcastgroup", &Round::broadcast_group},
    {"capture", &Round::capture},
};

void run_sizes(const Communicator &comm, const Options &options, const std::string &operation) {
    const auto round = kRounds.find(operation);
    if (round == kRounds.end())
        give_up(
            fmt::format("no operation {}. Fix: one of the names in collectives.cpp", operation));
    for (std::size_t bytes = options.from_bytes; bytes <= options.to_bytes;
         bytes *= options.factor) {
        const std::size_t count = std::max<std::size_t>(1, bytes / sizeof(float));
        const auto begin = Clock::now();
        for (int i = 0; i < options.iterations; i++) {
            Round played(comm, count, i % comm.ranks());
            (played.*round->second)();
        }
        const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
        if (comm.rank() == 0)
            fmt::print("{:14} {:>10} B {:>10.0f} us\n", operation, count * sizeof(float),
                       took.count() / options.iterations);
    }
}

void run(const Options &options) {
    require_cuda(cudaSetDevice(options.device), "cudaSetDevice");
    Communicator comm(options.rank, options.ranks);
    const ncclUniqueId id = agree_on_id(options.id, options.rank, options.ranks);
    require(ncclCommInitRank(comm.handle(), options.ranks, id, options.rank), "ncclCommInitRank");
    for (const std::string &operation : options.operations) {
        if (operation == "types")
            check_types(comm);
        else if (operation == "split")
            check_split(comm);
        else
            run_sizes(comm, options, operation);
    }
    require(ncclCommFinalize(comm.get()), "ncclCommFinalize");
}

Options read_options(int argc, char **argv) {
    Options options;
    const auto number = [] { return std::strtoull(optarg, nullptr, 0); };
    const auto small_number = [&] { return static_cast<int>(number()); };
    const option known[] = {{"rank", 1, nullptr, 'r'},       {"ranks", 1, nullptr, 'n'},
                            {"id", 1, nullptr, 'i'},         {"device", 1, nullptr, 'd'},
                            {"operations", 1, nullptr, 'o'}, {"from", 1, nullptr, 'b'},
                            {"to", 1, nullptr, 'e'},         {"factor", 1, nullptr, 'f'},
                            {"iterations", 1, nullptr, 't'}, {"no-check", 0, nullptr, 'x'},
                            {nullptr, 0, nullptr, 0}};
    for (int key = 0; (key = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (key) {
        case 'r':
            options.rank = small_number();
            break;
        case 'n':
            options.ranks = small_number();
            break;
        case 'i':
            options.id = optarg;
            break;
        case 'd':
            options.device = small_number();
            break;
        case 'o': {
            options.operations.clear();
            std::istringstream words(optarg);
            for (std::string word; std::getline(words, word, ',');)
                options.operations.push_back(word);
            break;
        }
        case 'b':
            options.from_bytes = number();
            break;
        case 'e':
            options.to_bytes = number();
            break;
        case 'f':
            options.factor = std::max<std::size_t>(2, number());
            break;
        case 't':
            options.iterations = small_number();
            break;
        case 'x':
            options.checks = false;
            break;
        default:
            give_up("usage: see the head of collectives.cpp");
        }
    }
    return options;
}

} // namespace

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const Options options = read_options(argc, argv);
    checks_elements = options.checks;
    run(options);
    fmt::print("rank {}: {}\n", options.rank,
               wrong_elements == 0 ? "all data right" : fmt::format("{} wrong", wrong_elements));
    return wrong_elements == 0 ? 0 : 1;
}
