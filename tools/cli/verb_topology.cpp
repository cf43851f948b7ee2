// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"
#include "tools/cli/print_error.h"
#include "tools/cli/topology_file.h"
#include "tools/cli/topology_text.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

int fail(const Error &failure) {
    print_error("collwire topology: {}\n", failure.message);
    return exit_status_of(failure);
}

void print_problems(const topology::Problems &problems, std::string_view prefix) {
    std::size_t errors = 0;
    std::size_t warnings = 0;
    for (const auto &problem : problems.kept()) {
        const bool is_error = problem.severity == topology::Severity::Error;
        (is_error ? errors : warnings)++;
        print_error("{}: {}{}\n", is_error ? "error" : "warning", prefix, problem.message);
    }
    if (errors < problems.errors() || warnings < problems.warnings())
        print_error("and {} more errors, {} more warnings\n", problems.errors() - errors,
                    problems.warnings() - warnings);
}

struct Loaded {
    topology::Checked checked;
    int status = EXIT_DONE;
};

Loaded load(const std::string &path) {
    Loaded loaded;
    const auto text = read_topology_text(path);
    if (!text) {
        loaded.status = fail(text.failure());
        return loaded;
    }
    loaded.checked = topology::check_topology(*text);
    if (loaded.checked.topology)
        return loaded;
    loaded.status = EXIT_FAILED;
    const std::string hint = other_format_hint(*text);
    if (hint.empty())
        print_problems(loaded.checked.problems, path + ": ");
    else
        print_error("error: {}: {}\n", path, hint);
    return loaded;
}

int flushed(int status) {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return status;
    print_error("collwire topology: cannot write to standard output\n");
    return EXIT_FAILED;
}

int check(const TopologyCommand &command) {
    const Loaded loaded = load(command.file);
    if (!loaded.checked.topology)
        return loaded.status;
    print_problems(loaded.checked.problems, command.file + ": ");
    fmt::print("{}: OK, {}\n", command.file, topology_counts(*loaded.checked.topology));
    return flushed(EXIT_DONE);
}

int show(const TopologyCommand &command) {
    const Loaded loaded = load(command.file);
    if (!loaded.checked.topology)
        return loaded.status;
    const auto &topology = *loaded.checked.topology;
    if (!command.host.empty()) {
        const std::string text = host_text(topology, command.host);
        if (text.empty())
            return fail(error(
                ErrorKind::Failed,
                fmt::format("{}: no host {}. Fix: list the hosts with `collwire topology show {}`",
                            command.file, topology::quote(command.host), command.file)));
        fmt::print("{}", text);
        return flushed(EXIT_DONE);
    }
    fmt::print("{}\n", topology_counts(topology));
    if (!topology.source().empty())
        fmt::print("source: {}\n", topology::quote(topology.source()));
    if (!topology.generated().empty())
        fmt::print("generated: {}\n", topology::quote(topology.generated()));
    fmt::print("\nSwitches\n{}\nTree\n{}\nHosts\n{}", switches_text(topology), tree_text(topology),
               hosts_text(topology));
    return flushed(EXIT_DONE);
}

// The format given by --format, else the one detected in the first file.
Result<const topology::Importer *> choose_importer(const TopologyCommand &command,
                                                   const std::string &first_text) {
    const auto *importer = command.format.empty() ? topology::detect_importer(first_text)
                                                  : topology::find_importer(command.format);
    if (importer != nullptr)
        return importer;
    std::string names;
    for (const auto &known : topology::importers())
        names += (names.empty() ? "" : " or ") + std::string(known.name);
    return error(
        ErrorKind::BadInput,
        fmt::format("{}: {}. Fix: give the output of {}, or its format with --format",
                    command.files.front(),
                    first_text.empty() ? "the file is empty" : "unknown format at offset 0",
                    names));
}

Result<void> write_text(const std::string &path, const std::string &text) {
    std::FILE *file = std::fopen(path.c_str(), "we");
    const bool written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    int failure = errno;
    if (file != nullptr && std::fclose(file) != 0 && written)
        failure = errno;
    else if (written)
        return {};
    return error(ErrorKind::Failed,
                 fmt::format("{}: cannot write: {}. Fix: give another file with -o", path,
                             std::strerror(failure)));
}

int import(const TopologyCommand &command) {
    if (!command.hosts.empty() && command.hosts.size() != command.files.size())
        return fail(error(
            ErrorKind::Usage,
            fmt::format(
                "{} files but {} --host options. Fix: give one --host per file, in the same order",
                command.files.size(), command.hosts.size())));
    std::vector<std::string> texts;
    for (const auto &path : command.files) {
        auto text = read_topology_text(path);
        if (!text)
            return fail(text.failure());
        texts.push_back(*std::move(text));
    }
    const auto importer = choose_importer(command, texts.front());
    if (!importer)
        return fail(importer.failure());
    std::vector<topology::ImportInput> inputs;
    for (std::size_t i = 0; i < texts.size(); i++)
        inputs.push_back(
            {command.files[i], texts[i], command.hosts.empty() ? std::string() : command.hosts[i]});
    const auto imported = topology::import_files(**importer, inputs);
    if (!imported)
        return fail(imported.failure());
    print_problems(imported->problems, "");

    const std::string json = topology::to_json(imported->document);
    const auto checked = topology::check_topology(json);
    print_problems(checked.problems, "result: ");
    if (!checked.topology)
        return fail(error(ErrorKind::BadInput,
                          "the imported topology contradicts itself, so nothing was written. Fix: "
                          "correct the input, or import fewer files at once"));
    print_error("{}\n", import_counts(imported->counts));
    if (command.out.empty()) {
        fmt::print("{}", json);
        return flushed(EXIT_DONE);
    }
    if (const auto written = write_text(command.out, json); !written)
        return fail(written.failure());
    return EXIT_DONE;
}

} // namespace

int run_topology(const TopologyCommand &command) {
    switch (command.action) {
    case TopologyAction::Check:
        return check(command);
    case TopologyAction::Show:
        return show(command);
    case TopologyAction::Import:
        break;
    }
    return import(command);
}

} // namespace collwire::cli
