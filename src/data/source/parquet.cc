/* The module ddptrain_parquet.so: row groups of Parquet files and record batches of Arrow files (Feather, version 2),
 * one in memory at a time. It exports one symbol, a table of C functions that throw no exceptions. */
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>

#include <strings.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "base/bits.h"
#include "data/source/frame_reader.h"
extern const struct frame_reader ddptrain_parquet_reader;
}
#undef OK /* a name of Arrow, too */

namespace {

/* One column of the current group. */
struct Column {
    int field = 0, leaf = 0; /* of the schema; of the columns of Parquet, which nested types have several of */
    std::shared_ptr<arrow::Array> values;
    std::vector<std::string> dictionary; /* of a dictionary of texts */
    std::vector<std::string> texts;      /* (FRAME_ROWS) of the current block */
};

struct State {
    std::shared_ptr<arrow::io::RandomAccessFile> file;
    std::unique_ptr<parquet::arrow::FileReader> parquet;
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> batches;
    std::shared_ptr<arrow::Schema> schema;
    std::vector<Column> columns; /* of those that can be read: by their names' order in the schema */
    std::vector<uint64_t> ends;  /* of each group: rows up to its end */
    int group = -1;
};

status failure(const struct frame *frame, const arrow::Status &reason) {
    if (reason.IsOutOfMemory()) return status_memory("the rows of %s", frame->path);
    return status_data("%s: %s", frame->path, reason.message().c_str());
}

/* ---- types ---- */

bool is_text(const arrow::DataType &type) {
    return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
}

bool is_wide(const arrow::DataType &type) {
    return type.id() == arrow::Type::INT64 || type.id() == arrow::Type::UINT64 || type.id() == arrow::Type::DECIMAL128;
}

bool is_date(const arrow::DataType &type) {
    return type.id() == arrow::Type::TIMESTAMP || type.id() == arrow::Type::DATE32 || type.id() == arrow::Type::DATE64;
}

bool is_number(const arrow::DataType &type) {
    switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
        return true;
    default:
        return false;
    }
}

const arrow::DataType &value_type(const arrow::DataType &type) {
    if (type.id() != arrow::Type::DICTIONARY) return type;
    return *static_cast<const arrow::DictionaryType &>(type).value_type();
}

/* NULL: it is read. */
const char *why_unread(const arrow::Field &field) {
    const arrow::DataType &type = value_type(*field.type());
    if (field.name().rfind("__index_level_", 0) == 0) return "it is the index of pandas";
    if (type.num_fields() > 0) return "it is nested; make columns of its parts";
    if (is_text(type) || is_date(type) || is_number(type)) return nullptr;
    return "values of this type are not read; convert it to numbers, texts or dates";
}

/* ---- opening ---- */

bool has_extension(const char *path, const char *extension) {
    size_t length = std::strlen(path), tail = std::strlen(extension);
    return length > tail && strcasecmp(path + length - tail, extension) == 0;
}

arrow::Status open_file(State *state, const char *path) {
    uint64_t rows = 0;
    ARROW_ASSIGN_OR_RAISE(state->file, arrow::io::ReadableFile::Open(path));
    if (has_extension(path, ".arrow") || has_extension(path, ".feather")) {
        ARROW_ASSIGN_OR_RAISE(state->batches, arrow::ipc::RecordBatchFileReader::Open(state->file));
        state->schema = state->batches->schema();
        for (int i = 0; i < state->batches->num_record_batches(); i++) {
            ARROW_ASSIGN_OR_RAISE(auto batch, state->batches->ReadRecordBatch(i));
            state->ends.push_back(rows += static_cast<uint64_t>(batch->num_rows()));
        }
        return arrow::Status::OK();
    }
    ARROW_ASSIGN_OR_RAISE(state->parquet, parquet::arrow::OpenFile(state->file, arrow::default_memory_pool()));
    auto metadata = state->parquet->parquet_reader()->metadata();
    for (int i = 0; i < metadata->num_row_groups(); i++)
        state->ends.push_back(rows += static_cast<uint64_t>(metadata->RowGroup(i)->num_rows()));
    return state->parquet->GetSchema(&state->schema);
}

void add_columns(State *state, struct frame *frame) {
    size_t count = static_cast<size_t>(state->schema->num_fields());
    frame->columns =
        static_cast<struct frame_column *>(arena_alloc(frame->arena, (count + 1) * sizeof *frame->columns));
    for (size_t i = 0; i < count; i++) {
        const arrow::Field &field = *state->schema->field(static_cast<int>(i));
        const arrow::DataType &type = value_type(*field.type());
        struct frame_column *column = &frame->columns[frame->count++];
        column->name = arena_copy(frame->arena, field.name().c_str());
        column->type = arena_copy(frame->arena, field.type()->ToString().c_str());
        column->unread = why_unread(field);
        column->is_date = is_date(type);
        column->holds_texts = is_text(type);
        column->is_wide = is_wide(type);
        if (column->unread) continue;
        Column read;
        read.field = static_cast<int>(i);
        if (state->parquet) read.leaf = state->parquet->manifest().schema_fields[i].column_index;
        state->columns.push_back(std::move(read));
    }
    frame->rows = state->ends.empty() ? 0 : state->ends.back();
}

/* Calls [work], whose failures and exceptions become a status. */
template <typename Work> status guarded(const struct frame *frame, Work work) noexcept {
    try {
        arrow::Status s = work();
        return s.ok() ? nullptr : failure(frame, s);
    } catch (const std::bad_alloc &) {
        return status_memory("the rows of %s", frame->path);
    } catch (const std::exception &e) {
        return status_data("%s: %s", frame->path, e.what());
    }
}

status open_frame(struct frame *frame, const char *const *, size_t) noexcept {
    return guarded(frame, [&] {
        auto *state = new State;
        frame->state = state;
        arrow::Status s = open_file(state, frame->path);
        if (s.ok()) add_columns(state, frame);
        return s;
    });
}

void close_frame(struct frame *frame) noexcept { delete static_cast<State *>(frame->state); }

/* ---- values ---- */

std::string text_at(const arrow::Array &values, int64_t i) {
    if (values.type_id() == arrow::Type::LARGE_STRING)
        return static_cast<const arrow::LargeStringArray &>(values).GetString(i);
    return static_cast<const arrow::StringArray &>(values).GetString(i);
}

double seconds_of(const arrow::TimestampType &type) {
    switch (type.unit()) {
    case arrow::TimeUnit::SECOND:
        return 1;
    case arrow::TimeUnit::MILLI:
        return 1e3;
    case arrow::TimeUnit::MICRO:
        return 1e6;
    default:
        return 1e9;
    }
}

template <typename Array> double value_of(const arrow::Array &values, int64_t i) {
    return static_cast<double>(static_cast<const Array &>(values).Value(i));
}

/* Of a number, and of a date in seconds since 1970. */
double number_at(const arrow::Array &values, int64_t i) {
    switch (values.type_id()) {
    case arrow::Type::BOOL:
        return value_of<arrow::BooleanArray>(values, i);
    case arrow::Type::INT8:
        return value_of<arrow::Int8Array>(values, i);
    case arrow::Type::INT16:
        return value_of<arrow::Int16Array>(values, i);
    case arrow::Type::INT32:
        return value_of<arrow::Int32Array>(values, i);
    case arrow::Type::INT64:
        return value_of<arrow::Int64Array>(values, i);
    case arrow::Type::UINT8:
        return value_of<arrow::UInt8Array>(values, i);
    case arrow::Type::UINT16:
        return value_of<arrow::UInt16Array>(values, i);
    case arrow::Type::UINT32:
        return value_of<arrow::UInt32Array>(values, i);
    case arrow::Type::UINT64:
        return value_of<arrow::UInt64Array>(values, i);
    case arrow::Type::HALF_FLOAT:
        return bits_from_float16(static_cast<const arrow::HalfFloatArray &>(values).Value(i));
    case arrow::Type::FLOAT:
        return value_of<arrow::FloatArray>(values, i);
    case arrow::Type::DOUBLE:
        return value_of<arrow::DoubleArray>(values, i);
    case arrow::Type::DECIMAL128:
        return std::stod(static_cast<const arrow::Decimal128Array &>(values).FormatValue(i));
    case arrow::Type::DATE32:
        return value_of<arrow::Date32Array>(values, i) * 86400;
    case arrow::Type::DATE64:
        return value_of<arrow::Date64Array>(values, i) / 1e3;
    case arrow::Type::TIMESTAMP:
        return value_of<arrow::TimestampArray>(values, i) /
               seconds_of(static_cast<const arrow::TimestampType &>(*values.type()));
    default:
        return NAN;
    }
}

/* A number that a double may not hold. */
std::string digits_at(const arrow::Array &values, int64_t i) {
    switch (values.type_id()) {
    case arrow::Type::INT64:
        return std::to_string(static_cast<const arrow::Int64Array &>(values).Value(i));
    case arrow::Type::UINT64:
        return std::to_string(static_cast<const arrow::UInt64Array &>(values).Value(i));
    default:
        return static_cast<const arrow::Decimal128Array &>(values).FormatValue(i);
    }
}

/* One array of the chunks of a column, and the texts of a dictionary. */
arrow::Status set_values(Column *column, const arrow::ArrayVector &chunks,
                         const std::shared_ptr<arrow::DataType> &type) {
    if (chunks.size() == 1) {
        column->values = chunks[0];
    } else if (chunks.empty()) {
        ARROW_ASSIGN_OR_RAISE(column->values, arrow::MakeEmptyArray(type));
    } else {
        ARROW_ASSIGN_OR_RAISE(column->values, arrow::Concatenate(chunks));
    }
    column->dictionary.clear();
    if (column->values->type_id() != arrow::Type::DICTIONARY) return arrow::Status::OK();
    const auto &texts = *static_cast<const arrow::DictionaryArray &>(*column->values).dictionary();
    for (int64_t i = 0; is_text(*texts.type()) && i < texts.length(); i++)
        column->dictionary.push_back(texts.IsNull(i) ? "" : text_at(texts, i));
    return arrow::Status::OK();
}

/* Reads group [index] of the columns that are wanted. */
arrow::Status load_group(State *state, const struct frame *frame, int index) {
    std::vector<int> leaves;
    std::vector<Column *> wanted;
    for (size_t i = 0; i < frame->count; i++) {
        if (!frame->columns[i].is_wanted) continue;
        wanted.push_back(&state->columns[i]);
        leaves.push_back(state->columns[i].leaf);
    }
    state->group = index;
    if (state->batches) {
        ARROW_ASSIGN_OR_RAISE(auto batch, state->batches->ReadRecordBatch(index));
        for (Column *column : wanted)
            ARROW_RETURN_NOT_OK(
                set_values(column, {batch->column(column->field)}, batch->column(column->field)->type()));
        return arrow::Status::OK();
    }
    ARROW_ASSIGN_OR_RAISE(auto table, state->parquet->ReadRowGroup(index, leaves));
    for (size_t i = 0; i < wanted.size(); i++) {
        const auto &column = table->column(static_cast<int>(i));
        ARROW_RETURN_NOT_OK(set_values(wanted[i], column->chunks(), column->type()));
    }
    return arrow::Status::OK();
}

/* Row [row] of the group as value [at] of the block. */
void read_value(struct frame_column *out, Column *column, int64_t row, size_t at) {
    const arrow::Array *values = column->values.get();
    bool is_null = values->IsNull(row);
    if (!is_null && values->type_id() == arrow::Type::DICTIONARY) {
        const auto &coded = static_cast<const arrow::DictionaryArray &>(*values);
        row = coded.GetValueIndex(row);
        if (out->holds_texts) {
            out->texts[at] = column->dictionary[static_cast<size_t>(row)].c_str();
            return;
        }
        values = coded.dictionary().get();
        is_null = values->IsNull(row);
    }
    if (!out->holds_texts) {
        out->numbers[at] = is_null ? NAN : number_at(*values, row);
        if (!out->is_wide) return;
    }
    out->texts[at] = nullptr;
    if (is_null || (out->is_wide && std::fabs(out->numbers[at]) < 0x1p53)) return;
    column->texts[at] = out->is_wide ? digits_at(*values, row) : text_at(*values, row);
    out->texts[at] = column->texts[at].c_str();
}

arrow::Status read_rows(State *state, struct frame *frame, uint64_t first, size_t count) {
    for (size_t done = 0; done < count;) {
        int group = 0;
        while (state->ends[static_cast<size_t>(group)] <= first + done) group++;
        uint64_t begin = group == 0 ? 0 : state->ends[static_cast<size_t>(group) - 1];
        uint64_t left = state->ends[static_cast<size_t>(group)] - (first + done);
        size_t part = left < count - done ? static_cast<size_t>(left) : count - done;
        if (group != state->group) ARROW_RETURN_NOT_OK(load_group(state, frame, group));
        for (size_t i = 0; i < frame->count; i++) {
            if (!frame->columns[i].is_wanted) continue;
            Column *column = &state->columns[i];
            if (column->texts.empty() && (frame->columns[i].holds_texts || frame->columns[i].is_wide))
                column->texts.resize(FRAME_ROWS);
            for (size_t k = 0; k < part; k++)
                read_value(&frame->columns[i], column, static_cast<int64_t>(first + done + k - begin), done + k);
        }
        done += part;
    }
    return arrow::Status::OK();
}

status read_frame(struct frame *frame, uint64_t first, size_t count) noexcept {
    return guarded(frame, [&] { return read_rows(static_cast<State *>(frame->state), frame, first, count); });
}

} // namespace

extern "C" const struct frame_reader ddptrain_parquet_reader = {"column", open_frame, read_frame, close_frame};
