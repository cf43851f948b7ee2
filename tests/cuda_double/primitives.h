// SPDX-License-Identifier: Apache-2.0
// What one warp group of a kernel does: a list of primitives (send, receive-reduce-send, ...) over
// the same connections, by one of NCCL's three protocols. Nothing in here blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_double/arithmetic.h"
#include "tests/cuda_double/connection.h"
#include "tests/cuda_double/truth_log.h"

namespace collwire::cuda_double {

// Runs of one phase advance at the same time, as their warps do.
class Run {
public:
    virtual ~Run() = default;
    // True when it has ended.
    virtual bool advance(bool &progressed) = 0;
    [[nodiscard]] virtual std::string state() const = 0;
};
using Phase = std::vector<std::unique_ptr<Run>>;

struct Primitive {
    const char *input = nullptr; // the user's, if it takes part
    char *output = nullptr;      // the user's, if it gets the result
    std::int64_t elements = 0;   // may be negative where a channel's part has ended: none
    bool receives = false;
    bool sends = false;
    bool is_final = false; // the last of a reduction: divides
    int work = 0;

    static Primitive send(const char *input, std::int64_t elements, char *copy_to = nullptr);
    static Primitive receive(char *output, std::int64_t elements);
    static Primitive receive_copy_send(char *output, std::int64_t elements);
    static Primitive receive_reduce_send(const char *input, std::int64_t elements);
    static Primitive receive_reduce_copy(const char *input, char *output, std::int64_t elements);
    static Primitive receive_reduce_copy_send(const char *input, char *output,
                                              std::int64_t elements);
};

struct PrimitivesSetup {
    Protocol protocol = Protocol::Simple;
    ReductionOperator reduction;
    int channel = 0;
    std::int64_t slot_bytes = 0;
    int slices_per_chunk = 1; // of Simple, as the next
    int steps_per_slice = 1;
    std::vector<Connection> receive;
    std::vector<Connection> send;
    std::vector<Primitive> primitives;
    KernelTruth *truth = nullptr;
};

class Primitives : public Run {
public:
    static std::unique_ptr<Primitives> make(PrimitivesSetup setup);

    bool advance(bool &progressed) override;
    [[nodiscard]] std::string state() const override;

protected:
    using Sources = std::vector<const char *>;
    using Destinations = std::vector<char *>;

    explicit Primitives(PrimitivesSetup setup);

    // Plays a part of the primitive if its connections are ready for it.
    enum class Played { Nothing, Part, All };
    virtual Played play(const Primitive &primitive) = 0;

    [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
    // All destinations become the reduction of all sources, whose first is the user's input if the
    // primitive has one.
    void combine(const Primitive &primitive, const Sources &sources,
                 const Destinations &destinations, std::int64_t elements);
    void log(const Primitive &primitive, const Connection &connection, Direction direction,
             std::uint64_t steps, std::int64_t bytes);

    PrimitivesSetup setup_;

private:
    std::int64_t element_bytes_;
    std::vector<char> accumulator_;
    std::size_t current_ = 0;
    bool is_open_ = false;
};

// One each in primitives_simple.cpp and primitives_low_latency.cpp.
std::unique_ptr<Primitives> make_simple(PrimitivesSetup setup);
std::unique_ptr<Primitives> make_low_latency(PrimitivesSetup setup);

} // namespace collwire::cuda_double
