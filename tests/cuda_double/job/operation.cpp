// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/operation.h"

#include <dlfcn.h>

#include <utility>

namespace collwire::job {
namespace {

// Functions that not every NCCL has are looked up; a missing one is null.
template <class Function> Function find_function(const std::string &name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name.c_str()));
}

using Comm = ncclComm_t;
using Stream = cudaStream_t;
using Type = ncclDataType_t;
using Reduction = ncclRedOp_t;
// The configuration of one call; null is the default.
using CallConfig = const void *;

template <class... Parameters>
using Plain = ncclResult_t (*)(const void *, void *, std::size_t, Type, Parameters..., Comm,
                               Stream);
template <class... Parameters>
using Configured = ncclResult_t (*)(const void *, void *, std::size_t, Type, Parameters..., Comm,
                                    Stream, CallConfig);

class Preparer {
public:
    Preparer(const Operation &operation, const Communicator &communicator, int sequence)
        : operation_(operation), comm_(communicator), sequence_(sequence),
          count_(operation.bytes / bytes_of(operation.type)),
          ranks_(static_cast<std::size_t>(communicator.ranks())),
          root_(operation.root >= 0 ? operation.root % communicator.ranks()
                                    : sequence % communicator.ranks()),
          in_(std::make_shared<DeviceBuffer>(bytes(count_ * ranks_))),
          out_(operation.is_in_place ? in_
                                     : std::make_shared<DeviceBuffer>(bytes(count_ * ranks_))) {}

    PreparedOperation prepare() {
        add_calls();
        prepared_.reset = [in = in_, out = out_, fill_input = input_filler()] {
            out->clear();
            std::vector<char> host(in->bytes());
            fill_input(host.data());
            in->put(host);
        };
        prepared_.reset();
        if (!prepared_.check)
            prepared_.check = [] { return Mismatch{}; };
        return std::move(prepared_);
    }

private:
    void add_calls() {
        switch (operation_.kind) {
        case OperationKind::AllReduce:
            reduction_call("AllReduce", 0, 0);
            return expect(0, count_, reduced(0));
        case OperationKind::ReduceScatter:
            reduction_call("ReduceScatter", 0, operation_.is_in_place ? own_part() : 0);
            return expect(operation_.is_in_place ? own_part() : 0, count_, reduced(own_part()));
        case OperationKind::AllGather:
            add("AllGather", operation_.is_in_place ? own_part() : 0, 0);
            return expect(0, count_ * ranks_, gathered(operation_.is_in_place));
        case OperationKind::Broadcast:
            rooted_call("Broadcast");
            return expect(0, count_, value_of(root_, 0));
        case OperationKind::Reduce:
            add_reduce();
            if (is_root())
                expect(0, count_, reduced(0));
            return;
        case OperationKind::AlltoAll:
            add("AlltoAll", 0, 0);
            return expect(0, count_ * ranks_, exchanged());
        case OperationKind::Gather:
            rooted_call("Gather");
            if (is_root())
                expect(0, count_ * ranks_, gathered(false));
            return;
        case OperationKind::Scatter:
            rooted_call("Scatter");
            return expect(0, count_, value_of(root_, own_part()));
        case OperationKind::Error:
            root_ = comm_.ranks();
            rooted_call("Broadcast");
            prepared_.calls.back().must_fail = true;
            return;
        case OperationKind::NullBuffer:
            reduction_call("AllReduce", 0, 0);
            prepared_.calls.back().must_fail = true;
            return;
        default:
            return add_transfers();
        }
    }

    void add_transfers() {
        prepared_.needs_group = true;
        switch (operation_.kind) {
        case OperationKind::SendRecv:
            send(comm_.next(), 0);
            receive(comm_.previous(), 0);
            return expect(0, count_, value_of(comm_.previous(), 0));
        case OperationKind::SelfSend:
            send(comm_.rank, 0);
            receive(comm_.rank, 0);
            return expect(0, count_, value_of(comm_.rank, 0));
        case OperationKind::Forward:
            return pass_on(comm_.rank + 1, comm_.rank - 1);
        case OperationKind::Backward:
            return pass_on(comm_.rank - 1, comm_.rank + 1);
        default:
            for (int peer = 0; peer < comm_.ranks(); peer++) {
                send(peer, static_cast<std::size_t>(peer) * count_);
                receive(peer, static_cast<std::size_t>(peer) * count_);
            }
            return expect(0, count_ * ranks_, exchanged());
        }
    }

    void pass_on(int to, int from) {
        const auto exists = [&](int peer) { return peer >= 0 && peer < comm_.ranks(); };
        if (exists(to))
            send(to, 0);
        if (exists(from)) {
            receive(from, 0);
            expect(0, count_, value_of(from, 0));
        }
    }

    [[nodiscard]] std::size_t bytes(std::size_t elements) const {
        return elements * bytes_of(operation_.type);
    }
    [[nodiscard]] bool is_root() const { return comm_.rank == root_; }
    // Where this rank's part of all ranks' elements begins.
    [[nodiscard]] std::size_t own_part() const {
        return static_cast<std::size_t>(comm_.rank) * count_;
    }

    Call &add_call(const std::string &name) {
        Call call;
        call.name = name;
        call.count = count_;
        call.type = operation_.type;
        call.uses_config = operation_.uses_config;
        return prepared_.calls.emplace_back(std::move(call));
    }

    // NCCL's function of that name, with what it takes between the type and the communicator.
    template <class... Parameters>
    void add(const std::string &name, std::size_t in_offset, std::size_t out_offset,
             Parameters... parameters) {
        const std::string symbol = "nccl" + name + (operation_.uses_config ? "Config" : "");
        const char *in =
            operation_.kind == OperationKind::NullBuffer ? nullptr : in_->data() + bytes(in_offset);
        char *out = out_->data() + bytes(out_offset);
        const auto plain = find_function<Plain<Parameters...>>(symbol);
        const auto configured = find_function<Configured<Parameters...>>(symbol);
        if (plain == nullptr) {
            prepared_.missing = symbol;
            return;
        }
        add_call(name).function = [=, count = count_, type = operation_.type, comm = comm_.handle,
                                   stream = comm_.stream, uses_config = operation_.uses_config] {
            return uses_config
                       ? configured(in, out, count, type, parameters..., comm, stream, nullptr)
                       : plain(in, out, count, type, parameters..., comm, stream);
        };
    }
    void reduction_call(const std::string &name, std::size_t in_offset, std::size_t out_offset) {
        add<Reduction>(name, in_offset, out_offset, operation_.reduction);
        if (!prepared_.calls.empty())
            prepared_.calls.back().reduction = operation_.reduction;
    }
    void rooted_call(const std::string &name) {
        add<int>(name, 0, 0, root_);
        if (!prepared_.calls.empty())
            prepared_.calls.back().root = root_;
    }
    void add_reduce() {
        add<Reduction, int>("Reduce", 0, 0, operation_.reduction, root_);
        if (prepared_.calls.empty())
            return;
        prepared_.calls.back().reduction = operation_.reduction;
        prepared_.calls.back().root = root_;
    }

    void send(int peer, std::size_t offset) {
        Call &call = add_call("Send");
        call.peer = peer;
        call.function = [=, from = in_->data() + bytes(offset), count = count_,
                         type = operation_.type, comm = comm_.handle, stream = comm_.stream] {
            return ncclSend(from, count, type, peer, comm, stream);
        };
    }
    void receive(int peer, std::size_t offset) {
        Call &call = add_call("Recv");
        call.peer = peer;
        call.function = [=, to = out_->data() + bytes(offset), count = count_,
                         type = operation_.type, comm = comm_.handle, stream = comm_.stream] {
            return ncclRecv(to, count, type, peer, comm, stream);
        };
    }

    void expect(std::size_t offset, std::size_t elements, const ValueOf &value) {
        const bool divides = operation_.reduction == ncclAvg && is_reduction();
        prepared_.check = [out = out_, at = bytes(offset), elements, type = operation_.type,
                           expected = Expected{value, divides ? comm_.ranks() : 1}] {
            std::vector<char> host(elements * bytes_of(type));
            out->get(at, host);
            return compare(type, host.data(), elements, expected);
        };
    }
    [[nodiscard]] bool is_reduction() const {
        return operation_.kind == OperationKind::AllReduce ||
               operation_.kind == OperationKind::ReduceScatter ||
               operation_.kind == OperationKind::Reduce;
    }

    // What goes in: the same function of rank and index in every operation.
    [[nodiscard]] std::function<void(char *)> input_filler() const {
        return [type = operation_.type, elements = count_ * ranks_,
                value = value_of(comm_.rank, 0)](char *to) { fill(type, to, elements, value); };
    }
    [[nodiscard]] ValueOf value_of(int rank, std::size_t offset) const {
        return [=, reduction = operation_.reduction, sequence = sequence_](std::size_t i) {
            return input_value(reduction, sequence, rank, offset + i);
        };
    }
    [[nodiscard]] ValueOf reduced(std::size_t offset) const {
        return [=, reduction = operation_.reduction, sequence = sequence_, ranks = comm_.ranks()](
                   std::size_t i) { return reduced_value(reduction, sequence, ranks, offset + i); };
    }
    // In place each rank's input is its part of the output.
    [[nodiscard]] ValueOf gathered(bool is_in_place) const {
        return [=, reduction = operation_.reduction, sequence = sequence_,
                count = count_](std::size_t i) {
            return input_value(reduction, sequence, static_cast<int>(i / count),
                               is_in_place ? i : i % count);
        };
    }
    [[nodiscard]] ValueOf exchanged() const {
        return [own = own_part(), reduction = operation_.reduction, sequence = sequence_,
                count = count_](std::size_t i) {
            return input_value(reduction, sequence, static_cast<int>(i / count), own + i % count);
        };
    }

    Operation operation_;
    const Communicator &comm_;
    int sequence_;
    std::size_t count_;
    std::size_t ranks_;
    int root_;
    std::shared_ptr<DeviceBuffer> in_;
    std::shared_ptr<DeviceBuffer> out_;
    PreparedOperation prepared_;
};

} // namespace

PreparedOperation prepare(const Operation &operation, const Communicator &communicator,
                          int sequence) {
    return Preparer(operation, communicator, sequence).prepare();
}

} // namespace collwire::job
