// SPDX-License-Identifier: Apache-2.0
// Plays PAT as a flow of data: a message is taken as soon as it is there, and sent as soon as all
// of its blocks are complete. As taking never waits for sending, nothing can get stuck.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "tests/cuda_double/pat_plan.h"
#include "tests/cuda_double/schedules.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr int kMostMessagesPerCall = 16;

// A rank's blocks of one operation, of all chunks.
class BlockStore {
public:
    BlockStore(const ChannelContext &context, const Collective &collective)
        : collective_(collective), rank_(context.communicator.rank()),
          ranks_(context.communicator.ranks()),
          element_bytes_(static_cast<std::int64_t>(bytes_of(collective.function.type))) {}
    virtual ~BlockStore() = default;

    // `distance`: from this rank to the owner. A block can be sent when it is complete.
    [[nodiscard]] virtual bool is_complete(std::int64_t chunk, int distance) const = 0;
    virtual void read(std::int64_t chunk, int distance, char *to) = 0;
    virtual void write(std::int64_t chunk, int distance, const char *from) = 0;

    [[nodiscard]] std::int64_t chunks() const {
        return (collective_.part_count + collective_.chunk_count - 1) / collective_.chunk_count;
    }
    [[nodiscard]] std::int64_t block_bytes(std::int64_t chunk) const {
        return element_bytes_ * std::min(collective_.chunk_count,
                                         collective_.part_count - chunk * collective_.chunk_count);
    }

protected:
    [[nodiscard]] std::size_t size_of(std::int64_t chunk) const {
        return static_cast<std::size_t>(block_bytes(chunk));
    }
    // In a buffer that has one rank's data, or every rank's.
    [[nodiscard]] std::int64_t offset_in_block(std::int64_t chunk) const {
        return element_bytes_ * (collective_.part_offset + chunk * collective_.chunk_count);
    }
    [[nodiscard]] std::int64_t offset_in_all(std::int64_t chunk, int distance) const {
        const std::int64_t owner = (rank_ + distance) % ranks_;
        return element_bytes_ * owner * collective_.count + offset_in_block(chunk);
    }

    Collective collective_;
    int rank_;
    int ranks_;
    std::int64_t element_bytes_;
};

// The user's output is where blocks arrive and from where they go on.
class GatheredBlocks : public BlockStore {
public:
    GatheredBlocks(const ChannelContext &context, const Collective &collective)
        : BlockStore(context, collective),
          arrived_(static_cast<std::size_t>(chunks() * ranks_), false) {
        for (std::int64_t chunk = 0; chunk < chunks(); chunk++)
            write(chunk, 0, collective_.input + offset_in_block(chunk));
    }

    [[nodiscard]] bool is_complete(std::int64_t chunk, int distance) const override {
        return arrived_[place_of(chunk, distance)];
    }
    void read(std::int64_t chunk, int distance, char *to) override {
        std::memcpy(to, collective_.output + offset_in_all(chunk, distance), size_of(chunk));
    }
    void write(std::int64_t chunk, int distance, const char *from) override {
        std::memmove(collective_.output + offset_in_all(chunk, distance), from, size_of(chunk));
        arrived_[place_of(chunk, distance)] = true;
    }

private:
    [[nodiscard]] std::size_t place_of(std::int64_t chunk, int distance) const {
        return static_cast<std::size_t>(chunk * ranks_ + distance);
    }

    std::vector<bool> arrived_;
};

// Sums grow from the rank's own input until the last of those before it in the tree has arrived.
class ReducedBlocks : public BlockStore {
public:
    using BlockStore::BlockStore;

    [[nodiscard]] bool is_complete(std::int64_t chunk, int distance) const override {
        const auto found = sums_.find({chunk, distance});
        return (found != sums_.end() ? found->second.arrived : 0) == sources_of(distance);
    }
    void read(std::int64_t chunk, int distance, char *to) override {
        const auto found = sums_.find({chunk, distance});
        std::memcpy(to, found != sums_.end() ? found->second.bytes.data() : own(chunk, distance),
                    size_of(chunk));
        if (found != sums_.end())
            sums_.erase(found);
    }
    void write(std::int64_t chunk, int distance, const char *from) override {
        Sum &sum = sums_[{chunk, distance}];
        if (sum.arrived++ == 0)
            sum.bytes.assign(own(chunk, distance), own(chunk, distance) + size_of(chunk));
        const ReductionOperator op{collective_.function.reduction, collective_.function.type,
                                   collective_.reduction_argument};
        reduce_into(op, sum.bytes.data(), from,
                    size_of(chunk) / static_cast<std::size_t>(element_bytes_));
        if (distance == 0 && is_complete(chunk, 0))
            read(chunk, 0, collective_.output + offset_in_block(chunk));
    }

private:
    struct Sum {
        int arrived = 0;
        std::vector<char> bytes;
    };

    [[nodiscard]] const char *own(std::int64_t chunk, int distance) const {
        return collective_.input + offset_in_all(chunk, distance);
    }
    // Ranks that send this one their sum of the block.
    [[nodiscard]] int sources_of(int distance) const {
        int sources = 0;
        for (int bit = 1; distance + bit < ranks_ && (distance & bit) == 0; bit *= 2)
            sources++;
        return sources;
    }

    std::map<std::pair<std::int64_t, int>, Sum> sums_;
};

// The messages of one dimension in one direction.
struct Flow {
    Connection connection;
    const std::vector<PatMessage> *messages;
    int bit = 1;           // 2^dimension
    std::int64_t next = 0; // counted through all chunks

    [[nodiscard]] std::int64_t per_chunk() const {
        return static_cast<std::int64_t>(messages->size());
    }
    [[nodiscard]] std::int64_t chunk() const { return next / per_chunk(); }
    [[nodiscard]] const PatMessage &message() const {
        return (*messages)[static_cast<std::size_t>(next % per_chunk())];
    }
    [[nodiscard]] bool has_ended(std::int64_t chunks) const { return next == chunks * per_chunk(); }
};

class PatRun : public Run {
public:
    PatRun(const ChannelContext &context, const Collective &collective)
        : channel_id_(context.channel.id()), work_(collective.work), truth_(context.truth),
          slot_bytes_(context.communicator.slot_bytes(Protocol::Simple)),
          is_gather_(collective.function.operation == Operation::AllGather) {
        const auto element_bytes = static_cast<std::int64_t>(bytes_of(collective.function.type));
        const int rank = context.communicator.rank();
        const int ranks = context.communicator.ranks();
        if (is_gather_)
            blocks_ = std::make_unique<GatheredBlocks>(context, collective);
        else
            blocks_ = std::make_unique<ReducedBlocks>(context, collective);
        plan_ = plan_pat({ranks, collective.part_count * element_bytes,
                          collective.chunk_count * element_bytes, is_gather_});
        int bit = 1;
        for (const auto &messages : plan_) {
            const int after = (rank + bit) % ranks;
            const int before = (rank - bit + ranks) % ranks;
            receives_.push_back(
                {Connection(context.channel, is_gather_ ? after : before, Direction::Receive, 0),
                 &messages, bit});
            sends_.push_back(
                {Connection(context.channel, is_gather_ ? before : after, Direction::Send, 0),
                 &messages, bit});
            bit *= 2;
        }
    }

    bool advance(bool &progressed) override {
        if (!is_open_)
            for_each_flow(
                [this](Flow &flow) { flow.connection.open(Protocol::Simple, slot_bytes_, 1); });
        is_open_ = true;
        bool moved = true;
        for (int i = 0; i < kMostMessagesPerCall && moved; i++) {
            moved = false;
            for (Flow &flow : receives_)
                moved = receive(flow) || moved;
            for (Flow &flow : sends_)
                moved = send(flow) || moved;
            progressed = progressed || moved;
        }
        bool all_ended = true;
        for_each_flow(
            [&](const Flow &flow) { all_ended = all_ended && flow.has_ended(blocks_->chunks()); });
        if (all_ended)
            for_each_flow([](const Flow &flow) { flow.connection.save_step(); });
        return all_ended;
    }

    [[nodiscard]] std::string state() const override {
        std::string text = fmt::format("channel {} PAT", channel_id_);
        for (const auto *flows : {&receives_, &sends_}) {
            for (const Flow &flow : *flows)
                text += fmt::format(", message {} {}", flow.next, flow.connection.state());
        }
        return text;
    }

private:
    template <class Call> void for_each_flow(Call call) {
        for (auto *flows : {&receives_, &sends_})
            std::for_each(flows->begin(), flows->end(), call);
    }

    // The distance that a message names is that of the rank which is farther from the owner: who
    // receives in an AllGather, who sends in a ReduceScatter.
    [[nodiscard]] int distance_here(const Flow &flow, int named, Direction direction) const {
        const bool is_farther = is_gather_ == (direction == Direction::Receive);
        return is_farther ? named : named - flow.bit;
    }

    bool receive(Flow &flow) {
        if (flow.has_ended(blocks_->chunks()) || !flow.connection.has_filled(1))
            return false;
        const std::int64_t bytes = blocks_->block_bytes(flow.chunk());
        const char *from = flow.connection.slot();
        for (const int named : flow.message().distances) {
            if (named != kAbsent)
                blocks_->write(flow.chunk(), distance_here(flow, named, Direction::Receive), from);
            from += bytes;
        }
        log(flow, Direction::Receive);
        flow.connection.advance(1);
        flow.connection.post_head();
        flow.next++;
        return true;
    }

    bool send(Flow &flow) {
        if (flow.has_ended(blocks_->chunks()) || !flow.connection.has_free(1))
            return false;
        const auto &distances = flow.message().distances;
        const bool is_complete = std::all_of(distances.begin(), distances.end(), [&](int named) {
            return named == kAbsent ||
                   blocks_->is_complete(flow.chunk(), distance_here(flow, named, Direction::Send));
        });
        if (!is_complete)
            return false;
        const std::int64_t bytes = blocks_->block_bytes(flow.chunk());
        char *to = flow.connection.slot();
        for (const int named : distances) {
            if (named != kAbsent)
                blocks_->read(flow.chunk(), distance_here(flow, named, Direction::Send), to);
            to += bytes;
        }
        flow.connection.set_bytes(static_cast<std::uint64_t>(bytes_of_message(flow)));
        log(flow, Direction::Send);
        flow.connection.advance(1);
        flow.connection.post_tail();
        flow.next++;
        return true;
    }

    [[nodiscard]] std::int64_t bytes_of_message(const Flow &flow) const {
        return blocks_->block_bytes(flow.chunk()) *
               static_cast<std::int64_t>(flow.message().distances.size());
    }

    void log(const Flow &flow, Direction direction) {
        truth_.add(work_, channel_id_, flow.connection.peer(), direction, flow.connection.index(),
                   Protocol::Simple, flow.connection.step(), 1,
                   static_cast<std::uint64_t>(bytes_of_message(flow)));
    }

    int channel_id_;
    int work_;
    KernelTruth &truth_;
    std::int64_t slot_bytes_;
    bool is_gather_;
    bool is_open_ = false;
    std::unique_ptr<BlockStore> blocks_;
    PatPlan plan_;
    std::vector<Flow> receives_; // by dimension
    std::vector<Flow> sends_;
};

} // namespace

Phase schedule_pat(const ChannelContext &context, const Collective &collective) {
    const Reduction reduction = collective.function.reduction;
    // Before 2.24 it was never seen, and no reduction of PAT scales.
    if (nccl_version() < 22400 || reduction == Reduction::PreMulSum ||
        reduction == Reduction::SumPostDiv)
        refuse_function(collective.function);
    Phase phase;
    phase.push_back(std::make_unique<PatRun>(context, collective));
    return phase;
}

} // namespace collwire::cuda_double
