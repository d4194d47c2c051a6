/* frame_reader: the interface of a reader of files with typed columns. Modules in C++ include it, too. */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct frame_column {
    const char *name;
    const char *type;   /* for `inspect` */
    const char *unread; /* why it cannot be a column, a clause; NULL: it can */
    bool is_date;       /* its numbers are seconds since 1970 */
    bool holds_texts;   /* read sets texts */
    bool is_wanted;     /* set by frame.c: read sets its values */
    bool is_wide;       /* whole numbers of 64 bits: read also sets texts, of those from 2^53 on; NULL: of others */
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
    /* Sets columns, count and rows. [names] (name_count): the columns that the config names; 0: none. */
    status (*open)(struct frame *frame, const char *const *names, size_t name_count);
    /* Reads rows first .. first + count - 1, at most FRAME_ROWS, of the wanted columns. Called with rising rows. */
    status (*read)(struct frame *frame, uint64_t first, size_t count);
    /* Also after a failure of open. */
    void (*close)(struct frame *frame);
};

/* The symbol of the module ddptrain_parquet.so, of this type. */
#define FRAME_PARQUET_SYMBOL "ddptrain_parquet_reader"
