// SPDX-License-Identifier: Apache-2.0
// Writes rows into an SQLite file: one table for each row type, and views.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "correlate/rows/row_sink.h"
#include "outputs/sqlite/held_signals.h"

struct sqlite3;
struct sqlite3_stmt;

namespace collwire::sqlite {

// The rows go to a file of another name in the same folder, which finish() renames: until then
// nothing is at `path`, or what was there before. Without finish() the destructor removes it. It
// holds back SIGINT, SIGTERM and SIGHUP as long as it exists, and stops at the first of them.
class SqliteFile final : public rows::RowSink {
public:
    // Failed: `path` is no regular file, or its folder takes no file. A new file has mode 0600; one
    // that was there keeps its mode. `scope`: of its tables and views; with Detail also those of a
    // report.
    [[nodiscard]] static Result<std::unique_ptr<SqliteFile>> create(const std::string &path,
                                                                    rows::Scope scope);
    ~SqliteFile() override;

    void put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) override;
    [[nodiscard]] bool is_stopped() const override;
    // The same, after a look for a signal: for who puts few rows.
    [[nodiscard]] bool should_stop();
    // A signal asked to stop.
    [[nodiscard]] bool is_interrupted() const { return is_interrupted_; }

    // Views and documentation, then the rename. Failed: the disk is full, for example.
    [[nodiscard]] Result<void> finish();

private:
    struct CloseDatabase {
        void operator()(sqlite3 *database) const;
    };
    struct FinalizeStatement {
        void operator()(sqlite3_stmt *statement) const;
    };
    using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;
    struct Table {
        Statement insert;
        std::uint64_t rows = 0;
    };

    SqliteFile(std::string path, std::string partial_path, rows::Scope scope)
        : path_(std::move(path)), partial_path_(std::move(partial_path)), scope_(scope) {}

    [[nodiscard]] bool has(rows::Scope scope) const;
    void open();
    void run(const std::string &sql);
    [[nodiscard]] Statement prepare(const std::string &sql);
    void step(sqlite3_stmt *statement);
    void bind(sqlite3_stmt *statement, int place, const rows::Cell &cell);
    void document();
    void fail();
    [[nodiscard]] Error failure_of(std::string_view what) const;

    HeldSignals signals_;
    std::string path_;
    std::string partial_path_; // empty: it is renamed
    rows::Scope scope_;
    std::unique_ptr<sqlite3, CloseDatabase> database_;
    std::map<const rows::TableInfo *, Table> tables_;
    std::optional<Error> failure_;
    std::uint64_t rows_ = 0;
    bool is_interrupted_ = false;
};

} // namespace collwire::sqlite
