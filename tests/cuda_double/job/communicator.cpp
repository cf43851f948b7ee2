// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/communicator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <climits>
#include <numeric>
#include <utility>

#include "tests/cuda_double/rendezvous.h"

namespace collwire::job {
namespace {

constexpr int kFirstWithNames = 22700;

int nccl_version() {
    int version = 0;
    require(ncclGetVersion(&version), "ncclGetVersion");
    return version;
}

// NCCL's initializer: everything undefined.
ncclConfig_t named_config(const std::string &name) {
    constexpr int kUndefined = INT_MIN;
    constexpr unsigned kMagic = 0xcafebeef;
    ncclConfig_t config{};
    config.size = sizeof config;
    config.magic = kMagic;
    config.version = kFirstWithNames;
    for (int *member :
         {&config.blocking, &config.cga_cluster_size, &config.min_ctas, &config.max_ctas,
          &config.split_share, &config.traffic_class, &config.collnet_enable, &config.cta_policy,
          &config.shrink_share, &config.nvls_ctas})
        *member = kUndefined;
    config.comm_name = name.c_str();
    return config;
}

} // namespace

Fields Communicator::fields() const {
    return {{"communicator", name}, {"instance", instance}, {"comm", hexadecimal(handle)},
            {"rank", rank},         {"ranks", ranks()},     {"stream", hexadecimal(stream)}};
}

Communicators::Communicators(const Plan &plan, JobLog &log, int rank, int ranks,
                             const std::string &id_place)
    : log_(log), rank_(rank), ranks_(ranks), has_names_(nccl_version() >= kFirstWithNames) {
    for (const CommunicatorPlan &communicator : plan.communicators)
        plans_[communicator.name] = communicator;
    add_world(id_place);
    for (const CommunicatorPlan &communicator : plan.communicators)
        create(communicator.name);
}

Communicators::~Communicators() {
    while (alive_.size() > 1) // parts before the whole
        destroy(alive_.begin()->first == kWorld ? std::next(alive_.begin())->first
                                                : alive_.begin()->first);
    destroy(kWorld);
}

Communicator *Communicators::find(const std::string &name) {
    const auto found = alive_.find(name);
    return found != alive_.end() ? &found->second : nullptr;
}

void Communicators::add_world(const std::string &id_place) {
    Communicator world{.name = kWorld, .members = std::vector<int>(), .rank = rank_};
    world.members.resize(static_cast<std::size_t>(ranks_));
    std::iota(world.members.begin(), world.members.end(), 0);
    const ncclUniqueId id = agree_on_id(id_place, rank_, ranks_);
    const Moment at = Moment::now();
    if (has_names_) {
        ncclConfig_t config = named_config(world.name);
        require(ncclCommInitRankConfig(&world.handle, ranks_, id, rank_, &config),
                "ncclCommInitRankConfig");
    } else {
        require(ncclCommInitRank(&world.handle, ranks_, id, rank_), "ncclCommInitRank");
    }
    created(std::move(world), at);
}

void Communicators::create(const std::string &name) {
    if (find(name) != nullptr)
        return;
    const CommunicatorPlan &plan = plans_.at(name);
    const int color = plan.color_of(rank_);
    Communicator part{.name = name, .instance = instances_[name]++};
    for (int rank = 0; rank < ranks_; rank++) {
        if (plan.color_of(rank) != color)
            continue;
        if (rank == rank_)
            part.rank = part.ranks();
        part.members.push_back(rank);
    }
    ncclConfig_t config = named_config(name);
    const Moment at = Moment::now();
    if (plan.shape == Shape::Without)
        shrink(plan, part, config);
    else
        require(ncclCommSplit(find(kWorld)->handle, color, rank_, &part.handle,
                              has_names_ ? &config : nullptr),
                "ncclCommSplit");
    if (color != NCCL_SPLIT_NOCOLOR)
        created(std::move(part), at);
}

// Those that are left out take no part in it.
void Communicators::shrink(const CommunicatorPlan &plan, Communicator &part, ncclConfig_t &config) {
    using Function =
        ncclResult_t (*)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int flags);
    const auto function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "ncclCommShrink"));
    if (function == nullptr)
        give_up("this NCCL has no ncclCommShrink. Fix: 2.27 or later");
    std::vector<int> excluded = plan.ranks;
    if (plan.color_of(rank_) != NCCL_SPLIT_NOCOLOR)
        require(function(find(kWorld)->handle, excluded.data(), static_cast<int>(excluded.size()),
                         &part.handle, &config, 0),
                "ncclCommShrink");
}

void Communicators::created(Communicator communicator, const Moment &at) {
    if (cudaStreamCreateWithFlags(&communicator.stream, cudaStreamNonBlocking) != cudaSuccess)
        give_up("no stream. Fix: COLLWIRE_CUDA_VERBOSE=1 shows more");
    Fields fields = communicator.fields();
    fields["returned_ns"] = Moment::now().monotonic_ns;
    fields["world_ranks"] = communicator.members;
    log_.write("created", at, fields);
    const std::string name = communicator.name;
    alive_[name] = std::move(communicator);
}

void Communicators::destroy(const std::string &name) {
    if (Communicator *communicator = find(name)) {
        cudaStreamSynchronize(communicator->stream);
        require(ncclCommFinalize(communicator->handle), "ncclCommFinalize");
        release(name, "destroyed", &ncclCommDestroy, "ncclCommDestroy");
    }
}

void Communicators::abort(const std::string &name) {
    if (find(name) != nullptr)
        release(name, "aborted", &ncclCommAbort, "ncclCommAbort");
}

void Communicators::release(const std::string &name, const char *event,
                            ncclResult_t (*function)(ncclComm_t), const char *function_name) {
    const Communicator communicator = *find(name);
    const Moment at = Moment::now();
    require(function(communicator.handle), function_name);
    Fields fields = communicator.fields();
    fields["returned_ns"] = Moment::now().monotonic_ns;
    log_.write(event, at, fields);
    cudaStreamSynchronize(communicator.stream);
    cudaStreamDestroy(communicator.stream);
    alive_.erase(name);
}

void Communicators::wait_for_all() const {
    for (const auto &[name, communicator] : alive_)
        cudaStreamSynchronize(communicator.stream);
}

} // namespace collwire::job
