// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/sqlite_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "correlate/rows/tables.h"
#include "outputs/sqlite/schema.h"
#include "outputs/sqlite/views.h"

namespace collwire::sqlite {

namespace {

// "cwir", for file(1): PRAGMA application_id.
constexpr int APPLICATION_ID = 0x63776972;
constexpr std::uint64_t ROWS_BETWEEN_LOOKS = 1024;       // for a signal
constexpr std::string_view REPLACEMENT = "\xef\xbf\xbd"; // U+FFFD

bool is_plain(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_sequence_length(text.substr(i));
        if (length == 0 || text[i] == 0)
            return false;
        i += length;
    }
    return true;
}

// SQLite takes any bytes for UTF-8, and a text of it ends at a zero for most readers.
std::string replaced(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = text[i] == 0 ? 0 : utf8_sequence_length(text.substr(i));
        result += length == 0 ? REPLACEMENT : text.substr(i, length);
        i += length == 0 ? 1 : length;
    }
    return result;
}

// The file that a link leads to, so that the rename keeps the link.
std::string target_of(const std::string &path) {
    char *real = ::realpath(path.c_str(), nullptr);
    std::string target = real == nullptr ? path : std::string(real);
    std::free(real);
    return target;
}

Error cannot_write(const std::string &path, std::string_view why) {
    return error(
        ErrorKind::Failed,
        fmt::format("{}: cannot write: {}. Fix: give another file with --sqlite", path, why));
}

} // namespace

void SqliteFile::CloseDatabase::operator()(sqlite3 *database) const {
    sqlite3_close(database);
}

void SqliteFile::FinalizeStatement::operator()(sqlite3_stmt *statement) const {
    sqlite3_finalize(statement);
}

Result<std::unique_ptr<SqliteFile>> SqliteFile::create(const std::string &path, rows::Scope scope) {
    const std::string target = target_of(path);
    struct stat there {};
    const bool is_there = ::stat(target.c_str(), &there) == 0;
    if (is_there && !S_ISREG(there.st_mode))
        return cannot_write(path, "it is not a regular file");
    std::unique_ptr<SqliteFile> file(new SqliteFile(target, target + ".partial-XXXXXX", scope));
    // Mode 0600, as captures have: rows contain command lines.
    const int descriptor = ::mkostemp(file->partial_path_.data(), O_CLOEXEC);
    if (descriptor < 0) {
        const int cause = errno;
        file->partial_path_.clear();
        return cannot_write(path, std::strerror(cause));
    }
    if (is_there)
        ::fchmod(descriptor, there.st_mode & 07777U);
    ::close(descriptor);
    file->open();
    if (file->failure_)
        return *file->failure_;
    return file;
}

SqliteFile::~SqliteFile() {
    tables_.clear();
    database_.reset();
    if (!partial_path_.empty())
        ::unlink(partial_path_.c_str());
}

Error SqliteFile::failure_of(std::string_view what) const {
    const int system = sqlite3_system_errno(database_.get());
    return error(ErrorKind::Failed,
                 fmt::format("{}: {}: {}{}. Fix: free space in its folder, or give another file "
                             "with --sqlite",
                             path_, what, sqlite3_errmsg(database_.get()),
                             system == 0 ? "" : fmt::format(" ({})", std::strerror(system))));
}

void SqliteFile::fail() {
    if (!failure_)
        failure_ = failure_of("cannot write");
}

void SqliteFile::run(const std::string &sql) {
    if (!failure_ &&
        sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
        fail();
}

SqliteFile::Statement SqliteFile::prepare(const std::string &sql) {
    sqlite3_stmt *statement = nullptr;
    if (!failure_ && sqlite3_prepare_v3(database_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT,
                                        &statement, nullptr) != SQLITE_OK)
        fail();
    return Statement(statement);
}

bool SqliteFile::has(rows::Scope scope) const {
    return scope == scope_ || (scope == rows::Scope::Report && scope_ == rows::Scope::Detail);
}

void SqliteFile::open() {
    sqlite3 *database = nullptr;
    const int opened = sqlite3_open_v2(partial_path_.c_str(), &database,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    database_.reset(database);
    if (opened != SQLITE_OK)
        return fail();
    // Rows are of their types: checks are for who changes them. No journal: a file that is not
    // finished is thrown away.
    run(fmt::format("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -16384; "
                    "PRAGMA ignore_check_constraints = ON; "
                    "PRAGMA application_id = {}; PRAGMA user_version = {}; BEGIN",
                    APPLICATION_ID, SCHEMA_VERSION));
    for (const rows::TableInfo *table : rows::all_tables()) {
        if (!has(table->scope))
            continue;
        run(create_table(*table));
        tables_[table].insert = prepare(insert_into(*table));
    }
}

bool SqliteFile::is_stopped() const {
    return failure_.has_value() || is_interrupted_;
}

bool SqliteFile::should_stop() {
    is_interrupted_ = is_interrupted_ || signals_.has_come();
    return is_stopped();
}

void SqliteFile::bind(sqlite3_stmt *statement, int place, const rows::Cell &cell) {
    if (const auto *number = std::get_if<std::uint64_t>(&cell)) {
        // SQLite's integers have a sign.
        constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
        sqlite3_bind_int64(statement, place,
                           static_cast<sqlite3_int64>(*number > most ? most : *number));
    } else if (const auto *with_sign = std::get_if<std::int64_t>(&cell)) {
        sqlite3_bind_int64(statement, place, *with_sign);
    } else if (const auto *text = std::get_if<std::string_view>(&cell)) {
        if (is_plain(*text)) {
            sqlite3_bind_text64(statement, place, text->empty() ? "" : text->data(), text->size(),
                                SQLITE_STATIC, SQLITE_UTF8);
        } else {
            const std::string plain = replaced(*text);
            sqlite3_bind_text64(statement, place, plain.data(), plain.size(), SQLITE_TRANSIENT,
                                SQLITE_UTF8);
        }
    } else {
        sqlite3_bind_null(statement, place);
    }
}

void SqliteFile::step(sqlite3_stmt *statement) {
    if (!failure_ && sqlite3_step(statement) != SQLITE_DONE)
        fail();
    sqlite3_reset(statement);
}

void SqliteFile::put_cells(const rows::TableInfo &table, std::span<const rows::Cell> cells) {
    if (is_stopped())
        return;
    if (rows_++ % ROWS_BETWEEN_LOOKS == 0 && signals_.has_come()) {
        is_interrupted_ = true;
        return;
    }
    const auto found = tables_.find(&table);
    if (found == tables_.end())
        return; // of another scope
    sqlite3_stmt *insert = found->second.insert.get();
    for (std::size_t i = 0; i < cells.size(); ++i)
        bind(insert, static_cast<int>(i) + 1, cells[i]);
    step(insert);
    ++found->second.rows;
}

void SqliteFile::document() {
    run(std::string(CREATE_DOCUMENTATION));
    const Statement table_insert = prepare("INSERT INTO \"tables\" VALUES (?, ?, ?)");
    const Statement column_insert = prepare("INSERT INTO \"columns\" VALUES (?, ?, ?, ?, ?)");
    const Statement view_insert = prepare("INSERT INTO \"views\" VALUES (?, ?)");
    const auto insert = [this](const Statement &statement,
                               std::initializer_list<rows::Cell> cells) {
        if (failure_)
            return;
        int place = 0;
        for (const rows::Cell &cell : cells)
            bind(statement.get(), ++place, cell);
        step(statement.get());
    };
    for (const rows::TableInfo *table : rows::all_tables()) {
        const auto found = tables_.find(table);
        if (found == tables_.end())
            continue;
        insert(table_insert, {table->name, table->meaning, found->second.rows});
        for (const rows::ColumnInfo &column : table->columns)
            insert(column_insert, {table->name, column.name, rows::unit_name(column.unit),
                                   column.meaning, std::uint64_t{column.is_nullable}});
    }
    for (const View &view : all_views()) {
        if (!has(view.scope))
            continue;
        run(fmt::format("CREATE VIEW \"{}\" AS {}", view.name, view.select));
        insert(view_insert, {view.name, view.meaning});
    }
}

Result<void> SqliteFile::finish() {
    if (!is_stopped()) {
        document();
        run("COMMIT");
    }
    is_interrupted_ = is_interrupted_ || signals_.has_come();
    if (failure_)
        return *failure_;
    if (is_interrupted_)
        return error(ErrorKind::Failed,
                     fmt::format("{}: not written: interrupted. Fix: run it again", path_));
    tables_.clear();
    if (sqlite3_close(database_.get()) != SQLITE_OK)
        return failure_of("cannot close");
    (void)database_.release();
    // Some file systems report a full disk only here.
    const int descriptor = ::open(partial_path_.c_str(), O_RDONLY | O_CLOEXEC);
    const bool is_whole = descriptor >= 0 && ::fsync(descriptor) == 0;
    const int cause = errno;
    if (descriptor >= 0)
        ::close(descriptor);
    if (!is_whole)
        return cannot_write(path_, std::strerror(cause));
    if (::rename(partial_path_.c_str(), path_.c_str()) != 0)
        return cannot_write(path_, std::strerror(errno));
    partial_path_.clear();
    return {};
}

} // namespace collwire::sqlite
