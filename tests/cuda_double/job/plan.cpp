// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace collwire::job {
namespace {

using Words = std::vector<std::string>;

struct TypeName {
    const char *word;
    const char *name;
    std::size_t bytes;
};

// In the order of ncclDataType_t.
constexpr std::array<TypeName, 10> kTypes = {{{"int8", "ncclInt8", 1},
                                              {"uint8", "ncclUint8", 1},
                                              {"int32", "ncclInt32", 4},
                                              {"uint32", "ncclUint32", 4},
                                              {"int64", "ncclInt64", 8},
                                              {"uint64", "ncclUint64", 8},
                                              {"float16", "ncclFloat16", 2},
                                              {"float32", "ncclFloat32", 4},
                                              {"float64", "ncclFloat64", 8},
                                              {"bfloat16", "ncclBfloat16", 2}}};

// In the order of ncclRedOp_t.
constexpr std::array<std::pair<const char *, const char *>, 5> kReductions = {{{"sum", "ncclSum"},
                                                                               {"prod", "ncclProd"},
                                                                               {"max", "ncclMax"},
                                                                               {"min", "ncclMin"},
                                                                               {"avg", "ncclAvg"}}};

const std::map<std::string, OperationKind> kOperations = {
    {"allreduce", OperationKind::AllReduce},
    {"allgather", OperationKind::AllGather},
    {"reducescatter", OperationKind::ReduceScatter},
    {"broadcast", OperationKind::Broadcast},
    {"reduce", OperationKind::Reduce},
    {"sendrecv", OperationKind::SendRecv},
    {"forward", OperationKind::Forward},
    {"backward", OperationKind::Backward},
    {"selfsend", OperationKind::SelfSend},
    {"allpairs", OperationKind::AllPairs},
    {"alltoall", OperationKind::AlltoAll},
    {"gather", OperationKind::Gather},
    {"scatter", OperationKind::Scatter},
    {"error", OperationKind::Error},
    {"nullbuffer", OperationKind::NullBuffer},
};

const std::map<std::string, Shape> kShapes = {
    {"whole", Shape::Whole}, {"block", Shape::Block}, {"stride", Shape::Stride},
    {"alone", Shape::Alone}, {"list", Shape::List},   {"without", Shape::Without}};

template <class Integer> Integer number_in(const std::string &word, const std::string &unit = "") {
    Integer value{};
    const char *end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc() || std::string(stop, end) != unit)
        throw PlanError(fmt::format("{} is no number{}", word,
                                    unit.empty() ? "" : " with " + unit + " after it"));
    return value;
}

std::size_t bytes_in(const std::string &word) {
    const auto digits = std::min(word.find_first_not_of("0123456789"), word.size());
    const std::string unit = word.substr(digits);
    const std::map<std::string, std::size_t> units = {
        {"", 1}, {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}};
    if (units.count(unit) == 0)
        throw PlanError(fmt::format("{} is no size: B, KiB or MiB", word));
    return number_in<std::size_t>(word.substr(0, digits)) * units.at(unit);
}

class Parser {
public:
    Plan parse(const std::string &text) {
        blocks_ = {&plan_.once};
        std::istringstream lines(text);
        int number = 0;
        for (std::string line; std::getline(lines, line);) {
            number++;
            std::istringstream stream(line.substr(0, line.find('#')));
            Words words;
            for (std::string word; stream >> word;)
                words.push_back(word);
            try {
                if (!words.empty())
                    read(words);
            } catch (const PlanError &error) {
                throw PlanError(fmt::format("plan, line {}: {}", number, error.what()));
            }
        }
        if (blocks_.size() > 1)
            throw PlanError("plan: an end is missing");
        // Without a line `loop` everything is the loop.
        if (!has_loop_)
            std::swap(plan_.once, plan_.loop);
        return std::move(plan_);
    }

private:
    void read(const Words &words) {
        const std::string &first = words.front();
        const auto word = [&](std::size_t index) -> const std::string & {
            if (index >= words.size())
                throw PlanError("too few words");
            return words[index];
        };
        if (first == "communicator")
            add_communicator(words);
        else if (first == "loop")
            begin_loop();
        else if (first == "group")
            open_block({.kind = StepKind::Group});
        else if (first == "repeat")
            open_block({.kind = StepKind::Repeat, .number = number_in<int>(word(1))});
        else if (first == "capture")
            open_block({.kind = StepKind::Capture,
                        .communicator = known(word(1)),
                        .number = number_in<int>(word(2))});
        else if (first == "end")
            close_block();
        else if (first == "wait")
            add({.kind = StepKind::Wait});
        else if (first == "sleep")
            add({.kind = StepKind::Sleep, .number = number_in<int>(word(1), "ms")});
        else if (first == "create")
            add({.kind = StepKind::Create, .communicator = part_of_world(word(1))});
        else if (first == "destroy")
            add({.kind = StepKind::Destroy, .communicator = part_of_world(word(1))});
        else if (first == "abort")
            add({.kind = StepKind::Abort,
                 .communicator = part_of_world(word(1)),
                 .is_stuck = words.size() > 2 && words[2] == "stuck"});
        else
            add({.kind = StepKind::Operation, .operation = operation(words)});
    }

    void add_communicator(const Words &words) {
        if (words.size() < 3 || kShapes.count(words[2]) == 0)
            throw PlanError("communicator NAME whole, block N, stride N, alone, list R ..., or "
                            "without R ...");
        CommunicatorPlan communicator{words[1], kShapes.at(words[2]), 0, {}};
        if (communicator.name == kWorld || names_.count(communicator.name) != 0)
            throw PlanError(fmt::format("a second communicator {}", communicator.name));
        for (std::size_t i = 3; i < words.size(); i++)
            communicator.ranks.push_back(number_in<int>(words[i]));
        const bool is_numbered =
            communicator.shape == Shape::Block || communicator.shape == Shape::Stride;
        if (is_numbered) {
            if (communicator.ranks.size() != 1 || communicator.ranks[0] < 1)
                throw PlanError("block and stride take a number of ranks");
            communicator.number = communicator.ranks[0];
        }
        names_.insert(communicator.name);
        plan_.communicators.push_back(communicator);
    }

    void begin_loop() {
        if (blocks_.size() > 1 || has_loop_)
            throw PlanError("loop stands alone, once");
        has_loop_ = true;
        blocks_ = {&plan_.loop};
    }

    void add(const Step &step) {
        if (blocks_.size() > 1 && step.kind != StepKind::Operation &&
            step.kind != StepKind::Group && step.kind != StepKind::Repeat)
            throw PlanError("only operations, groups and repeats in here");
        // The others' streams are not captured: their calls would be made once, at once.
        if (step.kind == StepKind::Operation && !captured_.empty() &&
            step.operation.communicator != captured_)
            throw PlanError(fmt::format("a capture of {} has no operations of another communicator",
                                        captured_));
        blocks_.back()->push_back(step);
    }
    void open_block(const Step &step) {
        add(step);
        if (step.kind == StepKind::Capture)
            captured_ = step.communicator;
        blocks_.push_back(&blocks_.back()->back().steps);
    }
    void close_block() {
        if (blocks_.size() == 1)
            throw PlanError("an end without a beginning");
        blocks_.pop_back();
        if (blocks_.size() == 1)
            captured_.clear();
    }

    [[nodiscard]] const std::string &known(const std::string &name) const {
        if (name != kWorld && names_.count(name) == 0)
            throw PlanError(fmt::format("{} is neither a step nor a communicator", name));
        return name;
    }
    [[nodiscard]] const std::string &part_of_world(const std::string &name) const {
        if (name == kWorld)
            throw PlanError("the world stays as long as the job");
        return known(name);
    }

    [[nodiscard]] Operation operation(const Words &words) const {
        Operation read;
        read.communicator = known(words[0]);
        if (words.size() < 2 || kOperations.count(words[1]) == 0)
            throw PlanError(
                fmt::format("{} is no operation", words.size() < 2 ? "nothing" : words[1]));
        read.kind = kOperations.at(words[1]);
        for (std::size_t i = 2; i < words.size(); i++)
            set(read, words[i], i + 1 < words.size() ? words[i + 1] : "", i);
        // The first ones of the list.
        if (read.is_in_place && read.kind > OperationKind::Reduce)
            throw PlanError(fmt::format("{} has no form in place", words[1]));
        if (read.times < 1 || (read.is_in_place && read.times > 1))
            throw PlanError("times takes a number of calls, of which none is in place");
        return read;
    }

    static void set(Operation &operation, const std::string &word, const std::string &next,
                    std::size_t &index) {
        const auto same = [&](const auto &entry) {
            if constexpr (std::is_same_v<std::decay_t<decltype(entry)>, TypeName>)
                return word == entry.word;
            else
                return word == entry.first;
        };
        const auto *type = std::find_if(kTypes.begin(), kTypes.end(), same);
        const auto *reduction = std::find_if(kReductions.begin(), kReductions.end(), same);
        if (type != kTypes.end())
            operation.type = static_cast<ncclDataType_t>(type - kTypes.begin());
        else if (reduction != kReductions.end())
            operation.reduction = static_cast<ncclRedOp_t>(reduction - kReductions.begin());
        else if (word == "inplace")
            operation.is_in_place = true;
        else if (word == "config")
            operation.uses_config = true;
        else if (word == "root" || word == "times") {
            (word == "root" ? operation.root : operation.times) = number_in<int>(next);
            index++;
        } else
            operation.bytes = bytes_in(word);
    }

    Plan plan_;
    std::set<std::string> names_;
    std::vector<std::vector<Step> *> blocks_;
    bool has_loop_ = false;
    std::string captured_; // the communicator of the capture that is open
};

} // namespace

int CommunicatorPlan::color_of(int rank) const {
    switch (shape) {
    case Shape::Whole:
        return 0;
    case Shape::Block:
        return rank / number;
    case Shape::Stride:
        return rank % number;
    case Shape::Alone:
        return rank;
    case Shape::List:
    case Shape::Without:
        break;
    }
    const bool is_named = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    return is_named == (shape == Shape::List) ? 0 : NCCL_SPLIT_NOCOLOR;
}

Plan parse_plan(const std::string &text) {
    return Parser().parse(text);
}

const char *name_of(ncclDataType_t type) {
    return kTypes[static_cast<std::size_t>(type)].name;
}

const char *name_of(ncclRedOp_t reduction) {
    return kReductions[static_cast<std::size_t>(reduction)].second;
}

std::size_t bytes_of(ncclDataType_t type) {
    return kTypes[static_cast<std::size_t>(type)].bytes;
}

} // namespace collwire::job
