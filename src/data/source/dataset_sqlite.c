/* SQLite databases: the rows of a query or a table, with the columns of a CSV file: names, types, missing values and
 * labels are those of csv_source.h. The database is not trusted: it is opened read-only and immutable, nothing but
 * reading is authorized, and its schema may not call functions that are not safe. */
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/source/column_view.h"
#include "data/source/csv_source.h"
#include "data/source/first_look.h"

#define MAX_VALUE (16 << 20) /* bytes of a text, as of a record of CSV */

/* A view may have no end, or be expanded to another one without an end. The limits grow with the file, so that its
 * tables never reach them. */
#define MAX_NAMES 100000      /* that a statement may refer to, with those of its views */
#define WORK 10000            /* instructions of SQLite's virtual machine between two checks */
#define MAX_WORK 100000       /* checks without a row */
#define WORK_OF_BYTE 0.1      /* more of them for each byte of the file */
#define MAX_SECONDS 3600.0    /* of the processor, without a row */
#define MAX_COUNT_SECONDS 5.0 /* for the rows of all tables; each may take half of what is left */
#define MAX_BYTES 0x1p30      /* of all rows: 8 for each value, and the texts */
#define BYTES_OF_BYTE 100.0

struct records {
    sqlite3 *database;
    sqlite3_stmt *statement;
    char (*numbers)[CSV_REAL]; /* (columns) */
    bool has_names;            /* the names of the columns were read */
    size_t names;              /* in the statement that is prepared */
    double work, max_work;     /* checks since the last row */
    double begin, max_seconds; /* begin: of [work] */
    double bytes, max_bytes;   /* of all rows */
    double count_seconds;      /* that count_rows took so far */
};

/* ---- opening ---- */

static status failure(const struct csv *csv, const struct records *records) {
    sqlite3 *database = records->database;
    if (sqlite3_errcode(database) == SQLITE_NOMEM) return status_memory("the rows of %s", csv->path);
    if (sqlite3_errcode(database) == SQLITE_INTERRUPT)
        return status_new(
            STATUS_DATA,
            "%s: the query gives no row: it was stopped after %.2g instructions of SQLite; does a view have no end? If "
            "not, add an index, or make its rows a table (create table ... as select ...)",
            csv->path, records->work * WORK);
    if (records->names > MAX_NAMES)
        return status_data("%s: a query with its views refers to more than %d columns and tables", csv->path,
                           MAX_NAMES);
    if (sqlite3_errcode(database) == SQLITE_AUTH || strncmp(sqlite3_errmsg(database), "not authorized", 14) == 0)
        return status_data("%s: dataset.query may only read (select ...), without extensions", csv->path);
    return status_data("%s: SQLite: %s", csv->path, sqlite3_errmsg(database));
}

/* Only reading is allowed, also for the views of the database. */
static int authorize(void *context, int action, const char *first, const char *second, const char *database,
                     const char *view) {
    struct records *records = context;
    (void)first, (void)database, (void)view;
    if (++records->names > MAX_NAMES) return SQLITE_DENY;
    if (action == SQLITE_FUNCTION) return second && strcmp(second, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    return action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE ? SQLITE_OK : SQLITE_DENY;
}

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Called after each WORK instructions; not 0 ends the query with SQLITE_INTERRUPT. */
static int check_work(void *context) {
    struct records *records = context;
    if (records->work == 0) records->begin = processor_seconds();
    return ++records->work > records->max_work || processor_seconds() - records->begin > records->max_seconds;
}

/* The next row of the statement; the work for it starts at 0. */
static int step(struct records *records) {
    records->work = 0;
    return sqlite3_step(records->statement);
}

/* Counts [bytes] of the rows of a query. */
static status add_bytes(const struct csv *csv, struct records *records, double bytes) {
    if ((records->bytes += bytes) <= records->max_bytes) return OK;
    return status_data("%s: the query gives more than %.0f MiB of rows, too many for this file; does a view have no "
                       "end? If not, add a limit, or make its rows a table (create table ... as select ...)",
                       csv->path, records->max_bytes / 0x1p20);
}

/* "file:<path>?immutable=1", or "file://<path>..." of an absolute path, with the characters of a URI escaped. */
static char *uri_of(const char *path, struct arena *arena) {
    SCOPED_TEXT uri = {0};
    text_add(&uri, *path == '/' ? "file://" : "file:"); /* without a host, which //path would begin with */
    for (; *path; path++)
        if (strchr("%?#", *path))
            text_printf(&uri, "%%%02x", (unsigned)*path);
        else
            text_add_bytes(&uri, path, 1);
    text_add(&uri, "?immutable=1");
    return arena_copy(arena, text_string(&uri));
}

/* An immutable database is read without its write-ahead log. [path]: of the file. */
static status check_log(const struct csv *csv, const char *path) {
    struct io_info info;
    TRY(io_stat(arena_printf(csv->arena, "%s-wal", path), &info));
    if (!info.exists || info.size == 0) return OK;
    return status_data("%s: the newest rows are still in %s-wal; close the program that writes the database, or run: "
                       "sqlite3 %s 'pragma wal_checkpoint(truncate)'",
                       csv->path, path, csv->path);
}

/* Nor are changes undone that were not finished: a journal that begins with a zero is not in use any more
 * (https://sqlite.org/lockingv3.html, hot journals). */
static status check_journal(const struct csv *csv, const char *path) {
    const char *journal = arena_printf(csv->arena, "%s-journal", path);
    struct io_info info;
    char first = 0;
    size_t got;
    int fd;
    TRY(io_stat(journal, &info));
    if (!info.exists || info.size == 0) return OK;
    TRY(io_open(journal, &fd));
    status s = io_read_at(fd, journal, &first, 1, 0, &got);
    TRY(status_first(s, io_close(fd, journal)));
    if (first == 0) return OK;
    return status_data(
        "%s: a change of the database was not finished (%s); close the program that writes the database, "
        "or undo the change: sqlite3 %s .tables",
        csv->path, journal, csv->path);
}

/* SQLite names these files after the file that a symbolic link leads to. */
static status check_changes(const struct csv *csv) {
    SCOPED_STRING real = realpath(csv->path, NULL);
    status s = real ? OK : status_errno(STATUS_IO, errno, "cannot read '%s'", csv->path);
    const char *paths[] = {csv->path, real};
    for (size_t i = 0; !s && i < 2; i++) {
        s = check_log(csv, paths[i]);
        if (!s) s = check_journal(csv, paths[i]);
    }
    return s;
}

static uint32_t number_at(const uint8_t *bytes, size_t size) {
    uint32_t number = 0;
    for (size_t i = 0; i < size; i++) number = number << 8 | bytes[i];
    return number;
}

/* SQLite reads zeros behind the end of a file that was truncated. The header has the number of pages and its size,
 * valid if two counters are equal (https://sqlite.org/fileformat.html). */
static status check_length(const struct csv *csv, uint64_t bytes) {
    uint8_t header[100];
    size_t got = 0;
    int fd;
    TRY(io_open(csv->path, &fd));
    status s = io_read_at(fd, csv->path, header, sizeof header, 0, &got);
    TRY(status_first(s, io_close(fd, csv->path)));
    uint64_t page = number_at(header + 16, 2), pages = number_at(header + 28, 4);
    bool is_valid = got == sizeof header && number_at(header + 24, 4) == number_at(header + 92, 4);
    if (page == 1) page = 65536;
    unsigned long long expected = pages * page;
    if (!is_valid || expected <= bytes) return OK;
    return status_data("%s: the file has %llu bytes, but its header says %llu; copy the file again", csv->path,
                       (unsigned long long)bytes, expected);
}

static status open_database(struct csv *csv, struct records *records) {
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    uint64_t bytes;
    TRY(file_check(csv->path, &bytes));
    csv->base.file_bytes += bytes;
    TRY(check_changes(csv));
    TRY(check_length(csv, bytes));
    int error = sqlite3_open_v2(uri_of(csv->path, csv->arena), &records->database, flags, NULL);
    if (!records->database) return status_memory("a database");
    if (error) return failure(csv, records);
    sqlite3_limit(records->database, SQLITE_LIMIT_LENGTH, MAX_VALUE);
    sqlite3_limit(records->database, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_db_config(records->database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(records->database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(records->database, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    if (sqlite3_exec(records->database, "pragma cell_size_check = on; pragma mmap_size = 0", NULL, NULL, NULL))
        return failure(csv, records);
    sqlite3_set_authorizer(records->database, authorize, records);
    sqlite3_progress_handler(records->database, WORK, check_work, records);
    records->max_work = MAX_WORK + WORK_OF_BYTE * (double)bytes;
    records->max_seconds = MAX_SECONDS;
    records->max_bytes = MAX_BYTES + BYTES_OF_BYTE * (double)bytes;
    return OK;
}

/* After a failure of the statement of one table: whether other tables may be readable. */
static bool is_unreadable(const struct records *records) {
    int error = sqlite3_errcode(records->database);
    bool is_unending = error == SQLITE_INTERRUPT || records->names > MAX_NAMES;
    return is_unending || (error == SQLITE_ERROR && !records->statement);
}

/* ---- the query ---- */

static status prepare(const struct csv *csv, struct records *records, const char *query) {
    const char *rest;
    records->names = 0;
    if (sqlite3_prepare_v2(records->database, query, -1, &records->statement, &rest)) return failure(csv, records);
    if (!records->statement || sqlite3_column_count(records->statement) == 0 ||
        !sqlite3_stmt_readonly(records->statement))
        return status_usage("%s: dataset.query must be a query that gives rows (select ...)", csv->path);
    if (rest[strspn(rest, " \t\r\n;")]) return status_usage("%s: dataset.query must be one statement", csv->path);
    return OK;
}

static void end_statement(struct records *records) {
    sqlite3_finalize(records->statement);
    records->statement = NULL;
}

/* The tables and views, sorted by name. */
static status list_tables(const struct csv *csv, struct records *records, struct string_list *tables) {
    size_t capacity = 16;
    *tables = (struct string_list){.items = arena_alloc(csv->arena, capacity * sizeof *tables->items)};
    TRY(prepare(csv, records,
                "select name from sqlite_schema where type in ('table', 'view') and name not like 'sqlite!_%' escape "
                "'!' order by name"));
    int result;
    while ((result = step(records)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(records->statement, 0);
        if (tables->count == capacity) {
            const char **more = arena_alloc(csv->arena, (capacity *= 2) * sizeof *more);
            memcpy(more, tables->items, tables->count * sizeof *more);
            tables->items = more;
        }
        tables->items[tables->count++] = arena_copy(csv->arena, name ? name : "");
    }
    status s = result == SQLITE_DONE ? OK : failure(csv, records);
    end_statement(records);
    return s;
}

/* The name of the only table, or an error that lists them. */
static status find_table(const struct csv *csv, struct records *records, const char **table) {
    struct string_list tables;
    SCOPED_TEXT names = {0};
    TRY(list_tables(csv, records, &tables));
    if (tables.count == 1) *table = tables.items[0];
    if (tables.count == 1) return OK;
    for (size_t i = 0; i < tables.count && names.length < 200; i++)
        text_printf(&names, "%s%s", i ? ", " : "", csv_printable(csv, tables.items[i]));
    return status_usage("%s: give dataset.table or dataset.query; the database has %s%s", csv->path,
                        tables.count ? "the tables: " : "no table", text_string(&names));
}

static const char *quoted(const char *name, struct arena *arena) {
    SCOPED_TEXT out = {0};
    for (; *name; name++) text_add(&out, *name == '"' ? "\"\"" : (char[]){*name, 0});
    return arena_copy(arena, text_string(&out));
}

/* *rows: of the table with the [quoted] name; -1: it takes more than records->max_seconds. */
static status count_rows(const struct csv *csv, struct records *records, const char *table, int64_t *rows) {
    double begin = processor_seconds();
    records->max_seconds = fmax((MAX_COUNT_SECONDS - records->count_seconds) / 2, 0.01);
    TRY(prepare(csv, records, arena_printf(csv->arena, "select count(*) from \"%s\"", table)));
    int result = step(records);
    records->count_seconds += processor_seconds() - begin;
    *rows = result == SQLITE_ROW ? sqlite3_column_int64(records->statement, 0) : -1;
    status s = result == SQLITE_ROW || result == SQLITE_INTERRUPT ? OK : failure(csv, records);
    end_statement(records);
    return s;
}

static status start_query(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct records *records = csv->records;
    const char *query = config->query, *table = config->table;
    if (is_validation && config->validation.query) query = config->validation.query;
    TRY(open_database(csv, records));
    if (!query && !table) TRY(find_table(csv, records, &table));
    if (!query) query = arena_printf(csv->arena, "select * from \"%s\"", quoted(table, csv->arena));
    TRY(prepare(csv, records, query));
    size_t columns = (size_t)sqlite3_column_count(records->statement);
    records->numbers = arena_alloc(csv->arena, columns * sizeof *records->numbers);
    return csv_make_fields(&csv->reader, csv->path, columns);
}

/* ---- records ---- */

static status bad_value(const struct csv *csv, size_t column, const char *what) {
    return status_data("%s:row %zu: column '%s': %s", csv->path, csv->base.rows + csv->base.left_out_count,
                       csv_printable(csv, csv->names[column]), what);
}

/* The value of a column that is used, or of any without csv->roles, as text. */
static status read_value(struct csv *csv, size_t column, const char **text) {
    struct records *records = csv->records;
    sqlite3_stmt *statement = records->statement;
    int at = (int)column, type = sqlite3_column_type(statement, at);
    *text = csv_missing_in(csv, column);
    if (csv->numbers) csv->numbers[column] = (struct csv_number){.is_real = type == SQLITE_FLOAT};
    if (type == SQLITE_NULL) return OK;
    if (type == SQLITE_FLOAT || type == SQLITE_INTEGER) {
        double number = sqlite3_column_double(statement, at);
        if (csv_takes_number(csv, column, number)) {
            csv->numbers[column] = (struct csv_number){.is_given = true, .value = number};
            return OK;
        }
    }
    if (type == SQLITE_BLOB && !csv->roles) *text = suggest_blob;
    if (type == SQLITE_BLOB) return csv->roles ? bad_value(csv, column, "a blob is not a number or text") : OK;
    if (type == SQLITE_FLOAT)
        csv_format_real(csv, column, sqlite3_column_double(statement, at), records->numbers[column]);
    if (type == SQLITE_INTEGER)
        snprintf(records->numbers[column], CSV_REAL, "%lld", (long long)sqlite3_column_int64(statement, at));
    if (type != SQLITE_TEXT) {
        *text = records->numbers[column];
        return OK;
    }
    const char *value = (const char *)sqlite3_column_text(statement, at);
    size_t bytes = (size_t)sqlite3_column_bytes(statement, at);
    if (!value) return status_memory("a text of %s", csv->path);
    if (strlen(value) != bytes && csv->roles) return bad_value(csv, column, "the text contains a NUL character");
    *text = value;
    return add_bytes(csv, records, (double)bytes);
}

/* The text of a column that is not used, or a missing one; another type is "". */
static const char *text_of(const struct csv *csv, size_t column) {
    const struct records *records = csv->records;
    sqlite3_stmt *statement = records->statement;
    int type = sqlite3_column_type(statement, (int)column);
    if (type == SQLITE_NULL) return csv_missing_in(csv, column);
    const char *text = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(statement, (int)column) : NULL;
    return text ? text : "";
}

/* The names of the columns first, then the rows. */
static status next_record(struct csv *csv, bool *has_record) {
    struct records *records = csv->records;
    *has_record = true;
    if (!records->has_names) {
        records->has_names = true;
        for (size_t i = 0; i < csv->reader.count; i++) {
            const char *name = sqlite3_column_name(records->statement, (int)i);
            csv->reader.fields[i].text = arena_copy(csv->arena, name ? name : "");
        }
        csv->numbers = arena_alloc(csv->arena, (csv->reader.count + 1) * sizeof *csv->numbers);
        return OK;
    }
    int result = step(records);
    *has_record = result == SQLITE_ROW;
    if (result != SQLITE_ROW && result != SQLITE_DONE) return failure(csv, records);
    csv->reader.record_line = csv->base.rows + csv->base.left_out_count;
    if (*has_record) TRY(add_bytes(csv, records, 8.0 * (double)csv->reader.count));
    for (size_t i = 0; *has_record && i < csv->reader.count; i++)
        if (!csv->roles || csv->roles[i].at != NOT_USED || csv->roles[i].is_filtered)
            TRY(read_value(csv, i, &csv->reader.fields[i].text));
        else if (csv->roles[i].may_be_date)
            csv->reader.fields[i].text = text_of(csv, i);
    return OK;
}

static void close_records(struct csv *csv) {
    struct records *records = csv->records;
    sqlite3_finalize(records->statement);
    sqlite3_close(records->database);
}

static const struct csv_input input = {.unit = "row",
                                       .header = "the table",
                                       .state_bytes = sizeof(struct records),
                                       .start = start_query,
                                       .next = next_record,
                                       .close = close_records};

static status open_sqlite(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    return csv_open(&dataset_sqlite, config, path, wants_classes, train, out);
}

/* ---- init ---- */

/* Whether the table has a column [target], or any, with [target] NULL; *rows: how many it has. */
static status look_at_table(const struct csv *csv, const char *table, const char *target, bool *has_target,
                            int64_t *rows) {
    struct records *records = csv->records;
    const char *name = quoted(table, csv->arena);
    TRY(prepare(csv, records, arena_printf(csv->arena, "select * from \"%s\"", name)));
    *has_target = !target;
    for (int i = 0; target && i < sqlite3_column_count(records->statement); i++)
        *has_target = *has_target || strcmp(sqlite3_column_name(records->statement, i), target) == 0;
    end_statement(records);
    TRY(count_rows(csv, records, name, rows));
    if (*rows < 0) *rows = 0; /* others are preferred */
    return OK;
}

/* The table with the most rows among those that have the target. A table that cannot be read, such as a view of one
 * that was removed, is none of them. */
static status choose_table(const struct csv *csv, const struct string_list *tables, const char *target,
                           const char **table) {
    int64_t max = -1;
    status failure = OK;
    for (size_t i = 0; i < tables->count; i++) {
        bool has_target = false;
        int64_t rows = 0;
        status s = look_at_table(csv, tables->items[i], target, &has_target, &rows);
        if (s && !is_unreadable(csv->records)) return status_first(failure, s);
        if (s) failure = status_first(failure, s);
        if (s || !has_target || rows <= max) continue;
        max = rows;
        *table = tables->items[i];
    }
    if (*table || failure) {
        if (*table) status_free(failure);
        return *table ? OK : failure;
    }
    return status_usage("--target: no table of %s has a column '%s'", csv->path,
                        csv_printable(csv, target ? target : ""));
}

status sqlite_choose_table(const char *path, const char *target, struct arena *arena, struct string_list *tables,
                           const char **table) {
    struct records records = {0};
    struct csv csv = {.arena = arena, .path = path, .records = &records};
    *table = NULL;
    status s = open_database(&csv, &records);
    if (!s) s = list_tables(&csv, &records, tables);
    if (!s && tables->count == 0) s = find_table(&csv, &records, table); /* says that there is none */
    if (!s && tables->count == 1) *table = tables->items[0];
    if (!s && !*table) s = choose_table(&csv, tables, target, table);
    close_records(&csv);
    return s;
}

/* ---- inspect ---- */

static status describe_table(struct csv *csv, struct records *records, const char *name, struct text *out) {
    const char *table = quoted(name, csv->arena);
    int64_t rows;
    TRY(count_rows(csv, records, table, &rows));
    text_printf(out, "  %s: ", csv_printable(csv, name));
    if (rows >= 0) text_printf(out, "%lld rows\n", (long long)rows);
    if (rows < 0) text_printf(out, "its rows were not counted, which takes more than %.2g s\n", records->max_seconds);
    TRY(prepare(csv, records, arena_printf(csv->arena, "select * from \"%s\"", table)));
    for (int i = 0; i < sqlite3_column_count(records->statement); i++) {
        const char *type = sqlite3_column_decltype(records->statement, i);
        text_add(out, "    ");
        size_t start = out->length;
        text_add(out, csv_printable(csv, sqlite3_column_name(records->statement, i)));
        text_pad(out, start, 26);
        text_printf(out, " %s\n", type ? csv_printable(csv, type) : "");
    }
    end_statement(records);
    return OK;
}

static status describe_tables(struct csv *csv, struct records *records, struct text *out) {
    struct string_list tables;
    TRY(open_database(csv, records));
    TRY(list_tables(csv, records, &tables));
    text_printf(out, "file    %s\nformat  sqlite, %zu table%s\n\n", csv->path, tables.count,
                text_plural(tables.count, "s"));
    for (size_t i = 0; i < tables.count; i++) {
        status s = describe_table(csv, records, tables.items[i], out);
        if (s && !is_unreadable(records)) return s;
        if (s)
            text_printf(out, "  %s: cannot be read: %s\n", csv_printable(csv, tables.items[i]),
                        records->names > MAX_NAMES ? "its views refer to too many others"
                                                   : sqlite3_errmsg(records->database));
        status_free(s);
    }
    return OK;
}

static status inspect(const char *path, struct text *out) {
    struct records records = {0};
    struct csv csv = {.arena = arena_create(), .path = path, .records = &records};
    status s = describe_tables(&csv, &records, out);
    close_records(&csv);
    arena_destroy(csv.arena);
    return s;
}

static const char *const extensions[] = {".db", ".sqlite", ".sqlite3", NULL};
const struct dataset_format dataset_sqlite = {.name = "sqlite",
                                              .keys = KEYS_OF_NAMES | KEY_COLUMNS,
                                              .extensions = extensions,
                                              .reads_patterns = true,
                                              .has_queries = true,
                                              .open = open_sqlite,
                                              CSV_FUNCTIONS,
                                              .records = &input,
                                              .inspect = inspect,
                                              .pytorch = "read_sqlite({path}, {inputs}, {targets}{query})"};
