/* frame: files whose columns have names and types, such as netCDF, as the records of a table, block by block. Columns,
 * missing values and labels are those of a CSV file (csv_source.h); several files are one table. */
#ifndef DATA_FRAME_H
#define DATA_FRAME_H

#include "data/source/csv_source.h"

struct frame_column {
    const char *name;
    const char *type;   /* for `inspect` */
    const char *unread; /* why it cannot be a column, a clause; NULL: it can */
    bool is_date;       /* its numbers are seconds since 1970 */
    bool holds_texts;   /* read sets texts */
    bool is_wanted;     /* set by frame.c: read sets its values */
    double *numbers;    /* (FRAME_ROWS); NAN: missing */
    const char **texts; /* (FRAME_ROWS), of the current block; NULL: missing */
};

#define FRAME_ROWS 4096 /* of a block */

/* An open file. */
struct frame {
    const char *path;
    struct arena *arena;          /* until it is closed */
    struct frame_column *columns; /* (count), set by open */
    size_t count;
    uint64_t rows; /* set by open */
    void *state;   /* of the format */
};

struct frame_reader {
    const char *unit; /* what `inspect` calls a column: "variable" */
    /* Sets columns, count and rows. [names]: the columns that the config names, count 0: none. */
    status (*open)(struct frame *frame, const struct string_list *names);
    /* Reads rows first .. first + count - 1, at most FRAME_ROWS, of the wanted columns. Called with rising rows. */
    status (*read)(struct frame *frame, uint64_t first, size_t count);
    /* Also after a failure of open. */
    void (*close)(struct frame *frame);
};

/* For the functions of a format, with [reader]: open, add_records, inspect; the others are those of csv_source.h. */
status frame_open(const struct dataset_format *format, const struct frame_reader *reader,
                  const struct dataset_config *config, const char *path, bool wants_classes, const struct source *train,
                  struct source **out);
status frame_add_records(const struct frame_reader *reader, const struct dataset_config *config, bool is_validation,
                         struct text *out);
status frame_inspect(const char *format, const struct frame_reader *reader, const char *path, struct text *out);

/* The rows as records, for the config that `ddptrain init` writes: frame_records_next is a record_reader.next. */
struct frame_records;
status frame_records_open(const struct frame_reader *reader, const char *path, const char *target,
                          struct frame_records **out);
status frame_records_next(void *state, const struct csv_reader **record);
void frame_records_close(struct frame_records *records);

/* The readers of formats, for `init`; NULL: [format] has none. */
extern const struct frame_reader netcdf_reader;
const struct frame_reader *frame_reader_of(const struct dataset_format *format);

#endif
