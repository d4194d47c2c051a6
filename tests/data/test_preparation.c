/* Columns of a table become features: types, missing values, categories, dates, and the message for each wrong column.
 * ctest-labels: unit */
#include "data/columns/date.h"
#include "data/columns/raw_columns.h"
#include "open.h"

static char *folder, *path, *second;

static void setup(void) {
    folder = make_folder();
    path = path_in(folder, "t.csv");
    second = path_in(folder, "v.csv");
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
    free(second);
}

FIXTURE(setup, teardown)

/* Opens [text] with further keys and compares the features of [part]. */
static void check_features(const char *text, const char *keys, enum dataset_part part, size_t size, size_t rows,
                           const float *expected) {
    spill(path, text, strlen(text));
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, false, "{path: %s, %s}", path, keys));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->input_size, size);
    ck_assert_int_eq(info->input_shape[0], (int64_t)size);
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    read_part(dataset, part, &x, &y);
    for (size_t i = 0; i < rows * size; i++)
        ck_assert_msg(x[i] == expected[i], "%s: feature %zu of row %zu is %.9g, not %.9g", text, i % size, i / size,
                      x[i], expected[i]);
}

static void check(const char *text, const char *keys, size_t size, size_t rows, const float *expected) {
    check_features(text, keys, DATASET_TRAIN, size, rows, expected);
}

#define FEATURES(...)                                                                                                  \
    (const float[]) { __VA_ARGS__ }

TEST(missing_numbers) {
    const char *text = "a,b,y\n1,1,0\n,2,0\n3,3,0\n10,4,0\n3,NA,0\n";
    check(text, "columns: {a: {missing: mean}, b: {missing: constant}}", 2, 5,
          FEATURES(1, 1, 4.25, 2, 3, 3, 10, 4, 3, 0));
    check(text, "columns: {a: {missing: median}, b: {missing: constant, fill: -1}}", 2, 5,
          FEATURES(1, 1, 3, 2, 3, 3, 10, 4, 3, -1));
    check(text, "columns: {a: {missing: most_frequent}, b: {missing: most_frequent}}", 2, 5,
          FEATURES(1, 1, 3, 2, 3, 3, 10, 4, 3, 1));
    check(text, "columns: {a: {missing: indicator}, b: {missing: median, indicator: true}}", 4, 5,
          FEATURES(1, 0, 1, 0, 4.25, 1, 2, 0, 3, 0, 3, 0, 10, 0, 4, 0, 3, 0, 2.5, 1));
    check("a,b,y\n1,?,0\n-999,2,0\n", "missing: ['?', -999], columns: {a: {missing: mean}, b: {missing: mean}}", 2, 2,
          FEATURES(1, 2, 1, 2));
    check("a;b;y\n1;?;0\n-9,5;2;0\n", "missing: ['?', '-9,5'], columns: {a: {missing: mean}, b: {missing: mean}}", 2, 2,
          FEATURES(1, 2, 1, 2));
}

TEST(categories) {
    const char *text = "c,a,y\nred,1,0\nblue,2,0\nred,3,0\n,4,0\nblue,5,0\nred,6,0\n";
    check(text, "columns: {c: {missing: most_frequent}, a: ignore}", 2, 6,
          FEATURES(0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1));
    check(text, "columns: {c: {missing: indicator}, a: ignore}", 3, 6,
          FEATURES(0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0));
    check(text, "columns: {c: {missing: constant, fill: a}, a: ignore}", 3, 6,
          FEATURES(0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1));
    check(text, "columns: {c: {missing: constant}, a: ignore}", 3, 6,
          FEATURES(0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1));
    check(text, "columns: {c: {missing: constant, fill: red}, a: ignore}", 2, 6,
          FEATURES(0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1));
    check(text, "columns: {c: {missing: most_frequent, encoding: ordinal, indicator: true}, a: ignore}", 2, 6,
          FEATURES(1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0));
    /* numbers are sorted as numbers, and equal ones are one category */
    check("c,y\n10,0\n9,0\n1.0,0\n1,0\n", "columns: {c: {type: category, encoding: ordinal}}", 1, 4,
          FEATURES(2, 1, 0, 0));
    check("c,y\n10,0\n9,0\n1.0,0\n1,0\n", "scale: standard, columns: {c: {type: category, encoding: embedding}}", 1, 4,
          FEATURES(3, 2, 1, 1));
    /* a code with leading zeros makes all of them texts */
    check("c,y\n7,0\n007,0\n12,0\n7,0\n", "columns: {c: {type: category, encoding: ordinal}}", 1, 4,
          FEATURES(2, 0, 1, 2));
    check("c,y\n7,0\n,0\n12,0\n7,0\n",
          "columns: {c: {type: category, encoding: ordinal, missing: constant, fill: '07'}}", 1, 4,
          FEATURES(2, 0, 1, 2));
    check("c,y\n0.7,0\n0,0\n0.70,0\n7,0\n", "columns: {c: {type: category, encoding: ordinal}}", 1, 4,
          FEATURES(1, 0, 1, 2));
    check(text, "columns: {c: {missing: indicator, encoding: embedding}, a: ignore}", 2, 6,
          FEATURES(2, 0, 1, 0, 2, 0, 2, 1, 1, 0, 2, 0));
    check("c,y\n10,0\n9,0\nx,0\n9,0\n", "columns: {c: {type: category, encoding: ordinal}}", 1, 4,
          FEATURES(0, 1, 2, 1));
}

TEST(booleans_and_dates) {
    check("a,b,y\nTrue,no,0\nfalse,YES,0\n", "columns: {a: boolean}", 2, 2, FEATURES(1, 0, 0, 1));
    check("a,y\n1,0\n0,0\n", "columns: {a: boolean}", 1, 2, FEATURES(1, 0));
    check("d,y\n2024-02-29,0\n1969-12-31,0\n", "", 4, 2, FEATURES(2024, 2, 29, 3, 1969, 12, 31, 2));
    check("d,y\n2024-02-29 13:59:01,0\n1969-12-31T00:00,0\n", "", 5, 2,
          FEATURES(2024, 2, 29, 3, 13, 1969, 12, 31, 2, 0));
    check("d,y\n31.12.2023,0\n,0\n1.1.2023,0\n",
          "columns: {d: {type: date, format: '%d.%m.%Y', parts: [year], missing: mean}}", 1, 3,
          FEATURES(2023, 2023, 2023));
}

/* Only the training rows decide. */
TEST(fitted_to_training_rows) {
    const char *text = "n,c,y\n1,u,0\n2,v,0\n3,u,0\n,v,0\n100,w,0\n,w,0\n";
    const char *keys = "scale: standard, split: {test: 0.33, shuffle: false}, "
                       "columns: {n: {missing: mean}, c: {missing: most_frequent}}";
    const float deviation = (float)(1 / sqrt(0.5));
    check_features(text, keys, DATASET_TRAIN, 3, 4, FEATURES(-deviation, 1, 0, 0, 0, 1, deviation, 1, 0, 0, 0, 1));
    check_features(text, keys, DATASET_VALIDATION, 3, 2, FEATURES((float)(98 / sqrt(0.5)), 0, 0, 0, 0, 0));
    check_features(text, "split: {test: 0.33, shuffle: false}, columns: {n: {missing: mean}, c: {encoding: ordinal}}",
                   DATASET_VALIDATION, 2, 2, FEATURES(100, -1, 2, -1));
    check_features(text, "split: {test: 0.33, shuffle: false}, columns: {n: {missing: mean}, c: {encoding: embedding}}",
                   DATASET_VALIDATION, 2, 2, FEATURES(100, 0, 2, 0));
}

/* A file of its own has other texts, and so other indices, than the training file. */
TEST(validation_file) {
    spill(second, "y,c,n\n0,9,7\n0,zebra,\n0,u,8\n", 27);
    char keys[500];
    snprintf(keys, sizeof keys, "validation: %s, columns: {n: {missing: mean}}", second);
    check_features("n,c,y\n1,u,0\n2,v,0\n3,u,0\n,v,0\n", keys, DATASET_VALIDATION, 3, 3,
                   FEATURES(7, 0, 0, 2, 0, 0, 8, 1, 0));
}

/* Each part of a date is scaled as a feature of its own; the indicator behind them stays 0 or 1. */
TEST(the_indicator_of_a_scaled_date) {
    const char *text = "d,y\n2000-05-09,0\n,0\n2004-01-09,0\n2002-03-09,0\n";
    const float two = (float)(2 / sqrt(2)); /* the deviations of 2000 2002 2004 2002 and of 5 3 1 3 */
    const float *expected = FEATURES(-two, two, 0, 0, 0, 1, two, -two, 0, 0, 0, 0);
    check(text, "columns: {d: {type: date, parts: [year, month], missing: median, indicator: true, scale: standard}}",
          3, 4, expected);
    check(text, "scale: standard, columns: {d: {type: date, parts: [year, month], missing: median, indicator: true}}",
          3, 4, expected);
}

/* Numbers without missing values and rules need no preparation. */
TEST(plain_tables) {
    struct dataset *dataset;
    spill(path, "a,y\n1,2\n3,4\n", 12);
    ck_ok(open_yaml(&dataset, false, "path: %s", path));
    ck_assert_ptr_null(dataset_preparation(dataset));
    dataset_close(dataset);
    ck_ok(open_yaml(&dataset, false, "{path: %s, columns: {a: {scale: minmax}}}", path));
    ck_assert_uint_eq(dataset_preparation(dataset)->count, 1);
    dataset_close(dataset);
}

static void compare_rows(struct dataset *dataset, enum dataset_part part, const json_t *table, size_t first,
                         size_t rows) {
    const json_t *features = json_object_get(table, "features");
    size_t size = dataset_info(dataset)->input_size;
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    read_part(dataset, part, &x, &y);
    for (size_t i = 0; i < rows; i++) {
        const json_t *row = json_array_get(features, first + i);
        ck_assert_uint_eq(json_array_size(row), size);
        for (size_t k = 0; k < size; k++) {
            double expected = json_number_value(json_array_get(row, k)), tolerance = 1e-6 * fmax(1, fabs(expected));
            ck_assert_msg(fabs((double)x[i * size + k] - expected) <= tolerance,
                          "seed %lld, row %zu, feature %zu: %.9g, not %.9g",
                          (long long)json_integer_value(json_object_get(table, "seed")), first + i, k,
                          (double)x[i * size + k], expected);
        }
    }
}

/* Random tables, prepared by pandas and scikit-learn (tests/vectors/make_columns.py). */
TEST(scikit_learn) {
    json_t *tables = vectors_load("columns"), *table;
    size_t index;
    json_array_foreach(tables, index, table) {
        const char *text = json_string_value(json_object_get(table, "csv"));
        size_t rows = (size_t)json_integer_value(json_object_get(table, "rows"));
        size_t train = (size_t)json_integer_value(json_object_get(table, "train_rows"));
        SCOPED_MEMORY char *columns = json_dumps(json_object_get(table, "columns"), 0);
        SCOPED_DATASET dataset;
        spill(path, text, strlen(text));
        ck_ok(open_yaml(&dataset, false, "{path: %s, split: {test: %.17g, shuffle: false}, columns: %s}", path,
                        ((double)(rows - train) - 0.5) / (double)rows, columns));
        ck_assert_uint_eq(dataset_info(dataset)->train_rows, train);
        compare_rows(dataset, DATASET_TRAIN, table, 0, train);
        compare_rows(dataset, DATASET_VALIDATION, table, train, rows - train);
    }
    json_decref(tables);
}

static const struct {
    const char *text, *keys, *sentence;
} wrongs[] = {
    {"a,y\n1,2\n,4\n", "",
     "t.csv:line 3: column 'a': missing value; remove the row, or write dataset.columns: {a: "
     "{missing: median}}, or mean, most_frequent, constant or indicator"},
    {"c,y\nu,2\nu,2\nNA,4\n", "",
     "t.csv:line 4: column 'c': missing value; remove the row, or write dataset.columns: "
     "{c: {missing: most_frequent}}, or constant or indicator"},
    {"a,y\n1,2\nx,4\n", "",
     "t.csv:line 3: column 'a': 'x' is not a number; its values before are numbers. Write "
     "dataset.columns: {a: category} or ignore, or list the text in dataset.missing"},
    {"name,y\nAnn,2\nBob,4\nBob,1\n", "",
     "t.csv: column 'name': it has 2 different texts in 3 rows, such as names or "
     "identifiers; write dataset.columns: {name: ignore}, or category if they are categories; a model reads "
     "sentences with {type: text}"},
    {"x,y\n\"[1, 2.5, 3]\",2\n\"[4, 5]\",4\n[],1\n", "",
     "t.csv: column 'x': its values are lists of 0 to 3 numbers, such as '[1, 2.5, 3]', but a value is one number; "
     "write them as the rows of an array, each filled up to 3 (docs/arrays.md; docs/models.md, Rows of different "
     "lengths)"},
    {"x,y\n[1. 2.],2\n[4. -5e3],4\n[0 1],1\n", "",
     "t.csv: column 'x': its values are lists of 2 numbers, such as '[1. 2.]', but a value is one number; write them "
     "to 2 columns, or as the rows of an array (docs/arrays.md)"},
    {"x,y\n70 80 82 72,2\n1 2 3 4,4\n0 1 2 3,1\n", "", "column 'x': its values are lists of 4 numbers"},
    {"x,y\n70 80 82,2\n1 2 3,4\n0 1 2,1\n", "", "column 'x': it has 3 different texts in 3 rows"},
    {"x,y\n[1 a],2\n[1 2],4\n[1 3],1\n", "", "column 'x': it has 3 different texts in 3 rows"},
    {"x,y\n[1],2\n[2],4\n[3],1\n", "", "column 'x': it has 3 different texts in 3 rows"},
    {"a,y\ninf,2\n4,4\n7,1\n1,1\n", "",
     "t.csv:line 2: column 'a': 'inf' is not a finite number, but other values of the column are numbers; correct it, "
     "write dataset.columns: {a: category} or ignore, or list the text in dataset.missing if it means a missing value"},
    {"a,y\nTrue,2\nFalse,4\n1,1\n0,1\n", "", "t.csv:line 2: column 'a': 'True' is not a finite number, but other"},
    {"a,y\nx,2\n007,4\n1,1\n2,1\n", "", "t.csv:line 2: column 'a': 'x' is not a finite number, but other values"},
    {"a,y\nx,2\n007,4\n008,1\n2,1\n", "", "t.csv: column 'a': it has 4 different texts in 4 rows, such as names"},
    {"a,y\nx,2\n1,4\nv,1\n", "", "t.csv: column 'a': it has 3 different texts in 3 rows, such as names"},
    {"a,b,c,y\n1,2,3,4\n,2,,4\n,,1,1\n", "columns: {b: {missing: mean}}",
     "line 3: column 'a': missing value; remove the row, or write dataset.columns: {a: {missing: median}}, or mean, "
     "most_frequent, constant or indicator; the same holds for 'c'"},
    {"a,b,y\n1,2,3\n", "columns: {y: ignore}", "dataset.columns: 'y' is a target, whose only rule is `category`"},
    {"a,y\n1,2\n", "columns: {b: {missing: mean}}", "dataset.columns: "},
    {"a,b,y\n1,2,3\n", "columns: {y: {missing: mean}}",
     "dataset.columns: 'y' is a target, whose only rule is `category`"},
    {"a,b,y\n1,2,3\n", "inputs: [a], columns: {b: number}", "dataset.columns: 'b' is not listed by dataset.inputs"},
    {"a,b,y\n1,2,3\n", "inputs: [a, b], columns: {b: ignore}", "dataset.columns: 'b' is ignored, but dataset.inputs"},
    {"a,y\n,2\n,3\n", "columns: {a: {missing: mean}}", "dataset.columns.a: no training row has a value; write ignore"},
    {"a,y\nu,2\nu,3\n", "columns: {a: {missing: mean}}", "dataset.columns.a: mean and median are for numbers"},
    {"a,y\n1,2\n,3\n", "columns: {a: {missing: constant, fill: x}}", "dataset.columns.a: fill must be a number"},
    {"a,y\n1,2\n", "columns: {a: {encoding: ordinal}}", "dataset.columns.a: encoding and unknown are for categories"},
    {"a,y\nu,2\nu,2\n", "columns: {a: {scale: standard}}", "dataset.columns.a: one-hot features are 0 and 1"},
    {"a,y\n2024-13-01,2\n", "columns: {a: date}", "t.csv:line 2: column 'a': '2024-13-01' is not a date"},
    {"a,y\nmaybe,2\n", "columns: {a: boolean}", "t.csv:line 2: column 'a': 'maybe' is not true, false, yes, no"},
    {"a,y\nu,2\n", "columns: {a: number}", "t.csv:line 2: column 'a': 'u' is not a number"},
    {"c,y\nu,1\nu,1\nw,1\n", "split: {test: 0.3, shuffle: false}, columns: {c: {type: category, unknown: error}}",
     "t.csv:line 4: column 'c': 'w' is not a category of the training rows"},
    {"a,y\n1,2\n1e999,4\n", "columns: {a: {missing: mean}}", "t.csv:line 3: column 'a': Inf is not a finite number"},
    {"a,b,y\n,1,2\n1,1e39,4\n", "columns: {a: {missing: mean}}", "t.csv:line 3: column 'b': 1e+39 is too large"},
    {"a,y\n1,2\n", "divide: 2, columns: {a: number}", "dataset.divide is for inputs that are all numbers"},
    {"a,y\nu,2\nu,2\n", "scale: {mean: 1, std: 2}", "dataset.scale: mean and std are for tables whose columns are all"},
    {"a,y\nu,2\n", "columns: {a: {type: category, encoding: embedding, scale: standard}}",
     "tokens of an embedding are not scaled; remove scale"},
    {"a,y\n1,2\n", "columns: {a: {type: number, encoding: embedding}}", "encoding and unknown are for categories, and"},
    {"a,y\nu,2\n", "columns: {a: {type: ignore, missing: mean}}",
     "the column is ignored, so other keys have no effect"},
    {"a,y\nu,2\n", "columns: {a: {indicator: true}}", "indicator needs a rule for missing values"},
    {"a,y\nu,2\n", "columns: {a: {fill: 1}}", "fill is the value of missing: constant"},
    {"a,y\nu,2\n", "columns: {a: {parts: [year]}}", "parts and format are for type: date"},
    {"a,y\nu,2\n", "columns: {a: {type: date, parts: [yaer]}}", "unknown part of a date 'yaer' (known: year, month"},
    {"a,y\nu,2\n", "columns: {a: {type: date, parts: [day, day]}}", "the part 'day' is listed twice"},
    {"a,y\nu,2\n", "columns: {a: {type: date, format: '%d.%m'}}",
     "format '%d.%m': it needs the year (%Y or %y), and with"},
    {"a,y\nu,2\n", "columns: {a: {type: date, format: '%k'}}",
     "format '%k': it may contain %Y %y %m %b %B %q %d %H %I %p %M %S %z only"},
    {"a,y\nu,2\n", "columns: {a: {type: number, encoding: ordinal}}", "encoding and unknown are for categories, and"},
    {"a,y\nu,2\n", "columns: {a: {type: category, missing: mean}}", "missing: mean is for numbers; a category has"},
    {"a,y\nu,2\n", "columns: {a: {type: category, scale: minmax}}", "one-hot features are 0 and 1 and are not scaled"},
    {"a,y\n1,2\n", "csv: {delimiter: ab}", "delimiter must be one character"},
    {"a,y\n1,2\n", "csv: {delimiter: '1'}", "delimiter must be one character"},
    {"a,y\n1,2\n", "csv: {delimiter: e}", "delimiter must be one character"},
    {"a,y\n1,2\n", "csv: {quote: '.'}", "quote must be one character"},
    {"a,y\n1,2\n", "csv: {decimal: x}", "decimal must be '.' or ','"},
    {"a,y\n1,2\n", "csv: {delimiter: ',', decimal: ','}", "delimiter, quote and decimal must be different"},
    {"a,y\nu,2\n", "columns: [a]", "dataset.columns: expected a mapping"},
    {"a,y\nu,2\n", "columns: {a: {missin: mean}}", "dataset.columns.a.missin: unknown key; did you mean 'missing'"},
    {"a,y\nu,2\n", "columns: {a: numbr}", "dataset.columns.a.type: expected one of auto, number"},
};

TEST(rejects) {
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct dataset *dataset;
        spill(path, wrongs[i].text, strlen(wrongs[i].text));
        status s = open_yaml(&dataset, false, "{path: %s, %s}", path, wrongs[i].keys);
        ck_assert_msg(s && strstr(status_message(s), wrongs[i].sentence), "%s: %s", wrongs[i].sentence,
                      s ? status_message(s) : "accepted");
        ck_assert(status_code(s) == STATUS_DATA || status_code(s) == STATUS_USAGE);
        status_free(s);
        ck_assert_ptr_null(dataset);
    }
}

TEST(dates) {
    static const struct {
        const char *text, *format;
        double seconds; /* -1: no date */
    } cases[] = {{"1970-01-01", NULL, 0},
                 {"2000-03-01", NULL, 951868800},
                 {"2024/12/31 23:59:59.5", NULL, 1735689599.5},
                 {"20240101", NULL, 1704067200},
                 {"2024-01-01T00:00Z", NULL, 1704067200},
                 {"2024-01-01 01:00:00+01:00", NULL, 1704070800}, /* the time on the clock */
                 {"2024-01-01T01:00-0930", NULL, 1704070800},
                 {"2024-01-01 01:00:00.5+01", NULL, 1704070800.5},
                 {"1.1.2024 01:00 +0100", "%d.%m.%Y %H:%M %z", 1704070800},
                 {"2024-01-01 01:00+1", NULL, -1},
                 {"2024-01-01 01:00+01:", NULL, -1},
                 {"2024-01-01 01:00+01:60", NULL, -1},
                 {"2024-01-01 01:00+24", NULL, -1},
                 {"2024-01-01 01:00ZZ", NULL, -1},
                 {"2024-01-01+01:00", NULL, -1},
                 {"31.12.1999 8:05", "%d.%m.%Y %H:%M", 946627500},
                 {"2/29/00", "%m/%d/%y", 951782400},
                 {"2023-02-29", NULL, -1},
                 {"2024-1-1", NULL, -1},
                 {"2024-01/01", NULL, -1},
                 {"2024-01-01 24:00", NULL, -1},
                 {"2024-01-01 10", NULL, -1},
                 {"2024-01-01x", NULL, -1},
                 {"2024-01-01 10:00:00.", NULL, -1},
                 {"0000-01-01", NULL, -1},
                 {"", NULL, -1},
                 {"1.1", "%d.%m.%Y", -1},
                 {"14-mar-2015", "%d-%b-%Y", 1426291200},
                 {"March 14, 2015", "%b %d, %Y", 1426291200},
                 {"14 Marc 2015", "%d %b %Y", -1},
                 {"3/14/15 12:30 am", "%m/%d/%y %I:%M %p", 1426293000},
                 {"3/14/15 12:30 PM", "%m/%d/%y %I:%M %p", 1426336200},
                 {"3/14/15 13:30 PM", "%m/%d/%y %I:%M %p", -1},
                 {"1970-02", "%Y-%m", 2678400},
                 {"Q4 1970", "Q%q %Y", 23587200},
                 {"Q5 1970", "Q%q %Y", -1},
                 {"1971", "%Y", 31536000},
                 {"8:30", "%H:%M", 30600}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        bool is_date = date_parse(cases[i].text, cases[i].format, &seconds);
        ck_assert_msg(is_date == (cases[i].seconds >= 0) && (!is_date || seconds == cases[i].seconds), "%s: %.3f",
                      cases[i].text, seconds);
    }
    static const double parts[DATE_PARTS] = {[DATE_YEAR] = 2024,     [DATE_MONTH] = 12,
                                             [DATE_DAY] = 31,        [DATE_WEEKDAY] = 1,
                                             [DATE_DAYOFYEAR] = 366, [DATE_QUARTER] = 4,
                                             [DATE_HOUR] = 23,       [DATE_MINUTE] = 59,
                                             [DATE_SECOND] = 59,     [DATE_EPOCH] = 1735689599.5 / 86400};
    for (int part = 0; part < DATE_PARTS; part++)
        ck_assert(date_part_of(1735689599.5, (enum date_part)part) == parts[part]);
    static const char *const ends[] = {"2024-12-31 23:59:59.999999999", "9999-12-31 23:59:59.999999",
                                       "2024-12-31 23:59:59.99999999999999999999"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        double seconds = 0;
        ck_assert_msg(date_parse(ends[i], NULL, &seconds), "%s", ends[i]);
        for (int part = DATE_MONTH; part < DATE_EPOCH; part++)
            if (part != DATE_WEEKDAY && part != DATE_DAYOFYEAR)
                ck_assert_msg(date_part_of(seconds, (enum date_part)part) == parts[part], "%s: %s", ends[i],
                              date_parts[part]);
    }
}

/* Sorted texts are in the order of category_compare, each once, and the rank of a text is that of its equal. */
TEST(sorted_categories) {
    static const char *const words[] = {"",         "a",    "aa",      "b",        "item-1",  "item-10",   "item-1",
                                        "\xc3\xa9", "\x7f", "item-1a", "abcdefgh", "abcdefg", "abcdefghi", "abcdefgh"};
    static const char *const shared[] = {"item-1", "item-12345678b", "item-", "item-12345678a", "item-12345678"};
    static const char *const numbers[] = {"1",
                                          "1.0",
                                          "-1",
                                          "0",
                                          "-0",
                                          "1e300",
                                          "-1e300",
                                          "0.5",
                                          "5e-1",
                                          "-2",
                                          "-2.5",
                                          "10",
                                          "9007199254740993",
                                          "9007199254740992"};
    static const struct {
        const char *const *texts;
        size_t count, different;
        bool are_numbers;
    } cases[] = {{words, sizeof words / sizeof *words, 12, false},
                 {shared, sizeof shared / sizeof *shared, 5, false},
                 {numbers, sizeof numbers / sizeof *numbers, 11, true},
                 {numbers, sizeof numbers / sizeof *numbers, 14, false},
                 {words, 0, 0, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *texts[16];
        double ranks[16];
        size_t count = cases[c].count;
        if (count) memcpy(texts, cases[c].texts, count * sizeof *texts);
        size_t kept = category_sort(texts, count, cases[c].are_numbers, ranks);
        ck_assert_uint_eq(kept, cases[c].different);
        for (size_t i = 1; i < kept; i++)
            ck_assert_int_lt(category_compare(cases[c].are_numbers, texts[i - 1], texts[i]), 0);
        for (size_t i = 0; i < count; i++)
            ck_assert_int_eq(category_compare(cases[c].are_numbers, texts[(size_t)ranks[i]], cases[c].texts[i]), 0);
    }
}

/* Texts whose first and last 8 bytes are those of others, and repeated ones of 0 to 39 bytes. */
static const char *similar_text(size_t i, struct arena *arena) {
    static const char *const around[][2] = {
        {"", ""}, {"00000000", ""}, {"", "00000000"}, {"aaaaaaaa", "bbbbbbbb"}, {"aaaaaaaa", "aaaaaaaa"}};
    size_t kind = i % 6, number = i / 6;
    if (kind < 5) return arena_printf(arena, "%s%zu%s", around[kind][0], number, around[kind][1]);
    return arena_printf(arena, "%.*s", (int)(number % 40), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

TEST(similar_texts) {
    enum { TEXTS = 4000 };
    SCOPED_ARENA arena = arena_create();
    struct text_pool pool = {.arena = arena};
    const char *texts[TEXTS], *sorted[TEXTS];
    size_t indexes[TEXTS], total = 0;
    double ranks[TEXTS];
    for (size_t i = 0; i < TEXTS; i++) {
        texts[i] = sorted[i] = similar_text(i, arena);
        ck_ok(text_pool_add(&pool, texts[i], i, &indexes[i]));
    }
    for (size_t i = 0; i < TEXTS; i++) {
        const struct pooled_text *item = &pool.items[indexes[i]];
        ck_assert_str_eq(item->text, texts[i]);
        ck_assert_uint_le(item->first_row, i);
        ck_assert_str_eq(texts[item->first_row], texts[i]);
        ck_assert(text_pool_has(&pool, texts[i]));
    }
    for (size_t i = 0; i < pool.count; i++) total += pool.items[i].count;
    ck_assert_uint_eq(total, TEXTS);
    ck_assert(!text_pool_has(&pool, "aaaaaaaac"));
    ck_assert(!text_pool_has(&pool, "aaaaaaaa9999999999bbbbbbbb"));
    size_t kept = category_sort(sorted, TEXTS, false, ranks);
    ck_assert_uint_eq(kept, pool.count);
    for (size_t i = 1; i < kept; i++) ck_assert_int_lt(strcmp(sorted[i - 1], sorted[i]), 0);
    for (size_t i = 0; i < TEXTS; i++) ck_assert_str_eq(sorted[(size_t)ranks[i]], texts[i]);
    for (size_t i = 0; i < TEXTS; i++) sorted[i] = arena_printf(arena, "%.4g", (double)(i * 7919 % 3001) - 1500.5);
    kept = category_sort(sorted, TEXTS, true, ranks);
    for (size_t i = 1; i < kept; i++) ck_assert_int_lt(category_compare(true, sorted[i - 1], sorted[i]), 0);
    text_pool_free(&pool);
}

CHECK_MAIN("preparation")
