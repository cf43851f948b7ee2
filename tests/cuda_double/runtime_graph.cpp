// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs. A graph is one list that is played in order: dependencies between its
// nodes are not kept, because the order of submission satisfies them all.
#include <cstdint>

#include "tests/cuda_double/launched_kernel.h"
#include "tests/cuda_double/runtime.h"

namespace collwire::cuda_double {
namespace {

Graph &graph_of(cudaGraph_t handle) {
    return *reinterpret_cast<Graph *>(handle);
}
Graph &graph_of(cudaGraphExec_t handle) {
    return *reinterpret_cast<Graph *>(handle);
}

// cudaHostNodeParams
struct HostNodeParameters {
    cudaHostFn_t function;
    void *user;
};

struct UserObject {
    cudaHostFn_t destroy;
    void *user;
};

void add_node(void **node, cudaGraph_t graph, WorkMaker make) {
    graph_of(graph).nodes.push_back(std::move(make));
    if (node != nullptr)
        *node = graph;
}

} // namespace
} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
    *status = stream_of(stream).capture != nullptr ? 1 : 0;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int *status, unsigned long long *id,
                                        cudaGraph_t *graph, void *dependencies,
                                        std::size_t *dependency_count) {
    Graph *capture = stream_of(stream).capture;
    *status = capture != nullptr ? 1 : 0;
    if (id != nullptr)
        *id = capture != nullptr ? capture->id : 0;
    if (graph != nullptr)
        *graph = reinterpret_cast<cudaGraph_t>(capture);
    if (dependencies != nullptr)
        *static_cast<void **>(dependencies) = nullptr;
    if (dependency_count != nullptr)
        *dependency_count = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, int *status, unsigned long long *id,
                                        cudaGraph_t *graph, void *dependencies, void *edges,
                                        std::size_t *dependency_count) {
    if (edges != nullptr)
        *static_cast<void **>(edges) = nullptr;
    return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, dependency_count);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int *status, unsigned long long *id) {
    return cudaStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int) {
    engine().begin_capture(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    Graph *ended = engine().end_capture(stream_of(stream));
    *graph = reinterpret_cast<cudaGraph_t>(ended);
    return ended != nullptr ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long) {
    graph_of(graph).references++;
    *executable = reinterpret_cast<cudaGraphExec_t>(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    {
        const LaunchingCall call(stream_of(stream));
        for (const WorkMaker &make : graph_of(executable).nodes)
            engine().enqueue(stream_of(stream), make());
    }
    launch_other_kernels();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    Engine::release(graph_of(executable));
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Engine::release(graph_of(graph));
    return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, void *, std::size_t, unsigned) {
    return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t, void *, const void *, std::size_t,
                                                   unsigned) {
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t, const void *, const void *, std::size_t) {
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t, const void *, const void *, const void *,
                                        std::size_t) {
    return cudaSuccess;
}

// Unlike what a capture records by itself, these record and wait at every replay.
cudaError_t cudaGraphAddEventRecordNode(void **node, cudaGraph_t graph, const void *, std::size_t,
                                        cudaEvent_t event) {
    add_node(node, graph, [state = event_of(event).state] { return make_record(state); });
    return cudaSuccess;
}

cudaError_t cudaGraphAddEventWaitNode(void **node, cudaGraph_t graph, const void *, std::size_t,
                                      cudaEvent_t event) {
    add_node(node, graph, [state = event_of(event).state] { return make_wait(state); });
    return cudaSuccess;
}

cudaError_t cudaGraphAddHostNode(void **node, cudaGraph_t graph, const void *, std::size_t,
                                 const void *parameters) {
    const auto call = *static_cast<const HostNodeParameters *>(parameters);
    add_node(node, graph, [call] { return make_host_call(call.function, call.user); });
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(void **object, void *user, cudaHostFn_t destroy, unsigned,
                                 unsigned) {
    *object = new UserObject{destroy, user};
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, void *object, unsigned, unsigned) {
    const std::unique_ptr<UserObject> moved(static_cast<UserObject *>(object));
    graph_of(graph).when_destroyed.emplace_back([kept = *moved] { kept.destroy(kept.user); });
    return cudaSuccess;
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
