// SPDX-License-Identifier: Apache-2.0
// Profiler plugins of NCCL that a job would load without collwire.
#pragma once

#include <string>

namespace collwire::cli {

// Where NCCL would take a profiler plugin from without NCCL_PROFILER_PLUGIN in the environment: a
// line in its configuration file, or libnccl-profiler.so in a folder of the loader. Empty: nowhere.
// Not known: a network plugin that is a profiler, too. Source: NCCL's src/misc/param.cc and
// src/plugin/plugin_open.cc.
std::string default_profiler_plugin();

} // namespace collwire::cli
