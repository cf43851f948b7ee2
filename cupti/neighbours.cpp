// SPDX-License-Identifier: Apache-2.0
#include "neighbours.h"

#include "clock.h"
#include "imports.h"
#include "loader.h"

#include <atomic>
#include <unistd.h>

namespace collwire::cupti {
namespace {

struct State {
  Functions functions = {};
  bool has_functions = false;
  pid_t process = 0;
  unsigned long long loads = 0;
  size_t imports = 0;
  std::atomic<Yield> yield = nullptr;
  std::atomic<bool> is_enabled[MAX_KINDS] = {};
  std::atomic<int> enabled = 0;
  std::atomic<uint64_t> last_call_ns = 0;
  std::atomic<const char*> last_function = nullptr;
};

constinit State state;

// A child of a fork has the guest's state, but not its thread: there the guest does nothing.
bool is_own_process() { return getpid() == state.process; }

void note(const char* function) {
  state.last_function.store(function, std::memory_order_relaxed);
  state.last_call_ns.store(monotonic_ns(), std::memory_order_release);
}

// Before a call that asks for records.
void before_request(const char* function) {
  if (!is_own_process()) return;
  note(function);
  if (Yield yield = state.yield.load(std::memory_order_acquire)) yield(function);
}

void set_enabled(Kind kind, bool is_on) {
  if (kind < 0 || kind >= MAX_KINDS || !is_own_process()) return;
  if (state.is_enabled[kind].exchange(is_on, std::memory_order_acq_rel) != is_on) state.enabled.fetch_add(is_on ? 1 : -1, std::memory_order_acq_rel);
}

Result on_register(RequestBuffer request, BufferCompleted completed) {
  before_request("cuptiActivityRegisterCallbacks");
  return state.functions.register_callbacks(request, completed);
}

Result on_enable(Kind kind) {
  before_request("cuptiActivityEnable");
  set_enabled(kind, true);
  return state.functions.enable(kind);
}

Result on_disable(Kind kind) {
  const Result result = state.functions.disable(kind);
  set_enabled(kind, false);
  if (is_own_process()) note("cuptiActivityDisable");
  return result;
}

Result on_enable_context(void* context, Kind kind) {
  before_request("cuptiActivityEnableContext");
  set_enabled(kind, true);
  return state.functions.enable_context(context, kind);
}

Result on_disable_context(void* context, Kind kind) {
  const Result result = state.functions.disable_context(context, kind);
  set_enabled(kind, false);
  if (is_own_process()) note("cuptiActivityDisableContext");
  return result;
}

// CUPTI forgets everything: so must the guest, before.
Result on_finalize() {
  before_request("cuptiFinalize");
  const Result result = state.functions.finalize();
  if (is_own_process()) {
    for (Kind kind = 0; kind < MAX_KINDS; ++kind) set_enabled(kind, false);
    note("cuptiFinalize");
  }
  return result;
}

Replacement replacements[] = {
    {"cuptiActivityRegisterCallbacks", reinterpret_cast<void*>(on_register), nullptr},
    {"cuptiActivityEnable", reinterpret_cast<void*>(on_enable), nullptr},
    {"cuptiActivityDisable", reinterpret_cast<void*>(on_disable), nullptr},
    {"cuptiActivityEnableContext", reinterpret_cast<void*>(on_enable_context), nullptr},
    {"cuptiActivityDisableContext", reinterpret_cast<void*>(on_disable_context), nullptr},
    {"cuptiFinalize", reinterpret_cast<void*>(on_finalize), nullptr},
};

void set_real_functions(const Functions& functions) {
  replacements[0].theirs = reinterpret_cast<void*>(functions.register_callbacks);
  replacements[1].theirs = reinterpret_cast<void*>(functions.enable);
  replacements[2].theirs = reinterpret_cast<void*>(functions.disable);
  replacements[3].theirs = reinterpret_cast<void*>(functions.enable_context);
  replacements[4].theirs = reinterpret_cast<void*>(functions.disable_context);
  replacements[5].theirs = reinterpret_cast<void*>(functions.finalize);
}

} // namespace

void watch_neighbours(Yield yield) {
  state.process = getpid();
  state.yield.store(yield, std::memory_order_release);
  const unsigned long long loads = loads_so_far();
  if (loads == state.loads) return;
  state.loads = loads;
  uint32_t api_version = 0;
  if (!state.has_functions && !load_functions(state.functions, api_version, true)) return;
  state.has_functions = true;
  set_real_functions(state.functions);
  state.imports = replace_imports(replacements, sizeof replacements / sizeof replacements[0]);
}

bool has_active_neighbour() { return state.enabled.load(std::memory_order_acquire) > 0; }

uint64_t last_neighbour_call_ns() { return state.last_call_ns.load(std::memory_order_acquire); }

bool has_unseen_caller() {
  bool is_ambiguous = false;
  return mapped_libcupti(is_ambiguous) != nullptr && (is_ambiguous || state.imports == 0);
}

const char* last_neighbour_function() {
  const char* function = state.last_function.load(std::memory_order_relaxed);
  return function ? function : "";
}

} // namespace collwire::cupti
