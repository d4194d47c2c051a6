/* CSV: accepted files, and the message for each rejected one. ctest-labels: unit */
#include <ctype.h>
#include <sys/stat.h>

#include "data/csv/csv.h"
#include "marks.h"
#include "open.h"

static char *folder, *path;

static void write_csv(const char *text) { spill(path, text, strlen(text)); }

static void setup(void) {
    folder = make_folder();
    path = path_in(folder, "t.csv");
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
}

FIXTURE(setup, teardown)

/* Opens [text] with further keys of the config and compares all rows. */
static void check_values(const char *text, const char *keys, size_t size, const float *inputs, size_t rows,
                         const float *targets) {
    write_csv(text);
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, false, "{path: %s, %s}", path, keys));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows, rows);
    ck_assert_uint_eq(info->input_size, size);
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    read_part(dataset, DATASET_TRAIN, &x, &y);
    for (size_t i = 0; i < rows * size; i++) ck_assert_msg(x[i] == inputs[i], "%s: input %zu is %g", text, i, x[i]);
    for (size_t i = 0; i < rows * info->target_size; i++)
        ck_assert_msg(((float *)y)[i] == targets[i], "%s: target %zu is %g", text, i, ((float *)y)[i]);
}

TEST(reads_values) {
    const float x[] = {1, 2, 4, 5}, y[] = {3, 6};
    check_values("a,b,y\n1,2,3\n4,5,6\n", "", 2, x, 2, y);
    check_values("a,b,y\n1,2,3\n4,5,6", "", 2, x, 2, y);
    check_values("\xef\xbb\xbf"
                 "a,b,y\r\n1,2,3\r\n4,5,6\r\n\r\n  \r\n\n",
                 "", 2, x, 2, y);
    check_values("a,b,y\r1,2,3\r4,5,6\r", "", 2, x, 2, y);
    check_values(" a ,\tb, \"y\" \n 1 , \"2\",3 \n+4.0,5e0,.6E1\n", "", 2, x, 2, y);
    check_values("y,b,a,other\n3,2,1,text\n6,5,4,\n", "inputs: [a, b], targets: y", 2, x, 2, y);
    check_values("y,a,b\n3,1,2\n6,4,5\n", "targets: y", 2, x, 2, y);
    check_values("\"a, \"\"first\"\"\nline\",b,y\n1,2,3\n4,5,6\n", "inputs: [\"a, \\\"first\\\"\\nline\", b]", 2, x, 2,
                 y);
    const float two_targets[] = {1, 2, 4, 5}, one_input[] = {3, 6};
    check_values("a,b,y\n1,2,3\n4,5,6\n", "inputs: y, targets: [a, b]", 1, one_input, 2, two_targets);
}

/* Empty lines are skipped, and a column without a name is used only where the config names it. */
TEST(as_pandas_reads_it) {
    const float x[] = {1, 2, 4, 5}, y[] = {3, 6}, both[] = {0, 1, 2, 1, 4, 5}, last[] = {1, 4};
    check_values("\n \r\n\na,b,y\n\n1,2,3\n \t\n\n4,5,6", "", 2, x, 2, y);
    check_values("\n\na\tb\ty\n1\t2\t3\n \n4\t5\t6\n", "", 2, x, 2, y);
    check_values(",a,b,y\n0,1,2,3\n1,4,5,6\n", "", 2, x, 2, y);
    check_values("a,b,y,\n1,2,3,\n4,5,6,\n", "", 2, x, 2, y);
    check_values(",a,b,y\n0,1,2,3\n1,4,5,6\n", "columns: {'Unnamed: 0': number}", 3, both, 2, y);
    check_values(",a,b,y\n0,1,2,3\n1,4,5,6\n", "inputs: 'Unnamed: 0', targets: a", 1, (float[]){0, 1}, 2, last);
    SCOPED_TEXT many = {0}; /* each line is looked at once */
    text_add(&many, "a,b,y\n1,2,3\n");
    for (int i = 0; i < 1000000; i++) text_add(&many, "\n");
    text_add(&many, "4,5,6\n");
    check_values(text_string(&many), "", 2, x, 2, y);
}

TEST(dialects) {
    const float x[] = {1.5F, 2, 4, 5}, y[] = {3, 6};
    check_values("a;b;y\n1,5;2;3\n4;5;6\n", "", 2, x, 2, y);
    check_values("a;b;y\n1.5;2;3\n4;5;6\n", "", 2, x, 2, y);
    check_values("a;\"b, or c\";y\n1,5;2;3\n4;5;6\n", "", 2, x, 2, y);
    check_values("a\tb\ty\r\n1.5\t2\t3\r\n4\t5\t6\r\n", "", 2, x, 2, y);
    check_values("a|b|y\n1.5|2|3\n4|5|6\n", "", 2, x, 2, y);
    check_values("a\tb\ty\n1,5\t2\t3\n4\t5\t6\n", "csv: {delimiter: tab, decimal: ','}", 2, x, 2, y);
    check_values("a,b,y\n\"1,5\",2,3\n\"4,0\",5,6\n", "csv: {decimal: ','}", 2, x, 2, y);
    const float large[] = {13881, -1234567.5f, 4, 13.881f}, last[] = {3, 6000};
    check_values("a;b;y\n13,881;-1,234,567.5;3\n4;13.881;6,000\n", "csv: {thousands: ','}", 2, large, 2, last);
    check_values("a;b;y\n13.881;-1.234.567,5;3\n4;13,881;6.000\n", "csv: {thousands: '.'}", 2, large, 2, last);
    check_values("a,b,y\n13 881,-1\u00a0234 567.5,3\n4,13.881,6\u202f000", "csv: {thousands: ' '}", 2, large, 2, last);
    check_values("a,b,y\n13'881,-1\u2019234'567.5,3\n4,13.881,6'000\n", "csv: {thousands: \"'\"}", 2, large, 2, last);
    check_values("a#b#y\n1.5#'2'#3\n4#5#6\n", "csv: {delimiter: '#', quote: \"'\"}", 2, x, 2, y);
    check_values("a,b\"\",y\n1.5,2,3\n4,5,6\n", "csv: {quote: ''}", 2, x, 2, y);
    check_values("1.5,2,3\n4,5,6\n", "csv: {no_header: true}", 2, x, 2, y);
    check_values("3;2;1,5\n6;5;4\n", "csv: {no_header: true}, inputs: [2, 1], targets: [0]", 2, x, 2, y);
    check_values("a;b;y\n?;2;3\n4;5;6\n", "missing: ['?'], columns: {a: {missing: constant, fill: 1.5}}", 2, x, 2, y);
}

/* With hundreds of digits before or behind the decimal separator. */
TEST(long_numbers) {
    static const char decimals[] = {'.', ','};
    const float x[] = {1.5F, 2, 4, 5}, y[] = {3, 6};
    char text[2000];
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "a;b;y\n1%c5%0500d;2%0500d%ce-500;3\n4;5;6\n", decimals[i], 0, 0, decimals[i]);
        check_values(text, "", 2, x, 2, y);
    }
}

/* Writes number [i] of a sequence of all lengths, signs and exponents. */
static void print_number(char *text, size_t size, unsigned i) {
    double value = (i % 2 ? -1.0 : 1.0) * (double)(i * 2654435761u) / (double)(1u << i % 32);
    snprintf(text, size, i % 7 == 0 ? "%.*e" : "%.*f", (int)(i % 19), value);
}

/* Numbers that are read where they stand, those that a blank leaves to csv_next, and strtod's are equal. */
TEST(plain_numbers) {
    enum { ROWS = 4000 };
    char number[400];
    SCOPED_TEXT file = {0};
    SCOPED_DATASET dataset;
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    text_add(&file, "plain,quoted,blank,y\n");
    for (unsigned i = 0; i < ROWS; i++) {
        print_number(number, sizeof number, i);
        text_printf(&file, "%s,\"%s\",%s,%s%s\n", number, number, number, number, i % 3 ? "" : " ");
    }
    write_csv(text_string(&file));
    ck_ok(open_yaml(&dataset, false, "{path: %s}", path));
    read_part(dataset, DATASET_TRAIN, &x, &y);
    for (unsigned i = 0; i < ROWS; i++) {
        print_number(number, sizeof number, i);
        float expected = (float)strtod(number, NULL);
        for (int k = 0; k < 3; k++) ck_assert_msg(x[i * 3 + k] == expected, "%s is %.9g", number, x[i * 3 + k]);
        ck_assert_msg(((float *)y)[i] == expected, "%s is %.9g", number, ((float *)y)[i]);
    }
}

/* More rows than a block of the row store has. */
TEST(many_rows) {
    enum { ROWS = 100000, COLUMNS = 21 };
    SCOPED_TEXT file = {0};
    SCOPED_DATASET dataset;
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    for (int k = 0; k < COLUMNS; k++) text_printf(&file, "c%d,", k);
    text_add(&file, "y\n");
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < COLUMNS; k++) text_printf(&file, "%d,", (i * 31 + k) % 1000);
        text_printf(&file, "%d\n", i);
    }
    write_csv(text_string(&file));
    ck_ok(open_yaml(&dataset, false, "{path: %s}", path));
    read_part(dataset, DATASET_TRAIN, &x, &y);
    for (int i = 0; i < ROWS; i++) {
        ck_assert(((float *)y)[i] == (float)i);
        for (int k = 0; k < COLUMNS; k++) ck_assert(x[i * COLUMNS + k] == (float)((i * 31 + k) % 1000));
    }
}

/* Adds rows of quoted labels with line ends, doubled quotes and characters of several bytes, whose lengths differ, so
 * that every kind of text is cut by the end of some piece of the file. */
static void add_labels(struct text *out, size_t bytes) {
    for (unsigned i = 0; out->length < bytes; i++)
        text_printf(out, "%u.25,\"%.*s\",%s\r\n", i, (int)(i % 11), "aaaaaaaaaaa",
                    i % 2 ? "\"x \"\"\xe2\x82\xac\"\"\r\n, \"" : "\xc3\xa9");
}

TEST(pieces) {
    SCOPED_TEXT file = {0};
    struct dataset *dataset;
    text_add(&file, "a,b,y\n");
    add_labels(&file, (size_t)5 << 20);
    size_t lines = (size_t)3 << 20;
    SCOPED_MEMORY char *empty = malloc(lines + 1);
    ck_assert_ptr_nonnull(empty);
    memset(empty, '\n', lines);
    empty[lines] = 0;
    text_add(&file, empty);
    write_csv(text_string(&file));
    const char *keys = "columns: {b: {type: category, missing: constant}}";
    ck_ok(open_yaml(&dataset, true, "{path: %s, %s}", path, keys));
    struct string_list labels = dataset_labels(dataset);
    ck_assert_uint_eq(labels.count, 2);
    ck_assert_str_eq(labels.items[0], "x \"\xe2\x82\xac\"\r\n, ");
    ck_assert_str_eq(labels.items[1], "\xc3\xa9");
    size_t rows = dataset_info(dataset)->train_rows;
    dataset_close(dataset);
    file.length -= lines; /* then a row that shows that the file is not UTF-8 */
    text_add(&file, "1,b,\xe9\n");
    write_csv(text_string(&file));
    ck_ok(open_yaml(&dataset, true, "{path: %s, %s}", path, keys));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, rows + 1);
    ck_assert_uint_eq(dataset_labels(dataset).count, 3);
    ck_assert_str_eq(dataset_labels(dataset).items[1], "\xc3\x83\xc2\xa9");
    dataset_close(dataset);
}

#define BYTES(text) text, sizeof(text) - 1

/* Each encoding gives the same label; a note says what was recognised without a byte order mark. */
TEST(encodings) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *keys, *note;
    } cases[] = {
        {BYTES("a,y\n1,Z\xc3\xbcrich \xe2\x82\xac\n"), "", NULL},
        {BYTES("\xef\xbb\xbf"
               "a,y\n1,Z\xc3\xbcrich \xe2\x82\xac\n"),
         "", NULL},
        {BYTES("a,y\n1,Z\xfcrich \x80\n"), "", "t.csv: it is not UTF-8 and is read as Windows-1252 (Latin-1)"},
        {BYTES("a,y\n1,Z\xfcrich \x80\n"), "csv: {encoding: windows-1252}", NULL},
        {BYTES("\xff\xfe"
               "a\0,\0y\0\n\0"
               "1\0,\0Z\0\xfc\0r\0i\0c\0h\0 \0\xac\x20\n\0"),
         "", NULL},
        {BYTES("\xfe\xff\0a\0,\0y\0\n\0"
               "1\0,\0Z\0\xfc\0r\0i\0c\0h\0 \x20\xac\0\n"),
         "", NULL},
        {BYTES("a\0,\0y\0\n\0"
               "1\0,\0Z\0\xfc\0r\0i\0c\0h\0 \0\xac\x20\n\0"),
         "csv: {encoding: utf-16}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_DATASET dataset;
        spill(path, cases[i].bytes, cases[i].size);
        ck_ok(open_yaml(&dataset, true, "{path: %s, %s}", path, cases[i].keys));
        ck_assert_str_eq(dataset_labels(dataset).items[0], "Z\xc3\xbcrich \xe2\x82\xac");
        struct string_list notes = dataset_notes(dataset);
        ck_assert_uint_eq(notes.count, cases[i].note != NULL);
        if (cases[i].note) ck_assert_ptr_nonnull(strstr(notes.items[0], cases[i].note));
    }
}

/* Files of two gzip members, as `cat` of two files gives, with zeros behind them, and damaged ones. */
TEST(compressed) {
    char *name = path_in(folder, "t.csv.gz"), command[600];
    struct dataset *dataset;
    snprintf(command, sizeof command,
             "cd %s && printf 'a,y\n1,2\n' | gzip > t.csv.gz && printf '3,4\n' | gzip >> t.csv.gz && "
             "head -c 512 /dev/zero >> t.csv.gz",
             folder);
    ck_assert_int_eq(system(command), 0);
    ck_ok(open_yaml(&dataset, false, "path: %s", name));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 2);
    dataset_close(dataset);
    snprintf(command, sizeof command, "cd %s && cp t.csv.gz u.csv.gz && printf x >> u.csv.gz", folder);
    ck_assert_int_eq(system(command), 0);
    ck_failure(open_yaml(&dataset, false, "path: %s/u.csv.gz", folder), STATUS_DATA, "there are bytes after");
    snprintf(command, sizeof command, "cd %s && head -c 30 t.csv.gz > u.csv.gz && mv u.csv.gz t.csv.gz", folder);
    ck_assert_int_eq(system(command), 0);
    ck_failure(open_yaml(&dataset, false, "path: %s", name), STATUS_DATA, "the compressed data is truncated");
    free(name);
}

/* The same bits as strtod's. */
TEST(numbers) {
    static const char *const texts[] = {"0",
                                        "-0",
                                        "+.5",
                                        "1.",
                                        "0.1",
                                        "123456789012345678",
                                        "0.1234567890123456789",
                                        "9999999999999999999",
                                        "-99.99999999999999999",
                                        "9007199254740993",
                                        "9007199254740993.0",
                                        "9007199254740993.5",
                                        "9007199254740995.000",
                                        "1e22",
                                        "1e23",
                                        "-3.5E-22",
                                        "12345678901234567e-19",
                                        "0.00000000000000000000001",
                                        "1e999",
                                        "2.2250738585072011e-308",
                                        "17976931348623157e292",
                                        "0.3000000000000000444089209850062616169452667236328125"};
    static const char *const none[] = {"",  "-",  "+-1", "1e",  "1e+", ".",   "1.2.3", "1 2",
                                       "x", "1x", "nan", "inf", "0x1", "--1", "e5",    "1e5.0"};
    double value;
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double expected = strtod(texts[i], NULL);
        ck_assert_msg(csv_number(texts[i], &value) && memcmp(&value, &expected, sizeof value) == 0, "%s: %.17g",
                      texts[i], value);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) ck_assert_msg(!csv_number(none[i], &value), "%s", none[i]);
    uint64_t state = 1;
    for (int i = 0; i < 100000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        snprintf(text, sizeof text, "%.*g", 1 + i % 18, ldexp((double)(state >> 11), (int)(state % 128) - 100));
        double expected = strtod(text, NULL);
        ck_assert_msg(csv_number(text, &value) && memcmp(&value, &expected, sizeof value) == 0, "%s", text);
    }
}

TEST(text_classes) {
    write_csv("a,species\n1,virginica\n2,setosa\n3,\"two\nlines\"\n4,setosa\n5,7\n");
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true, "path: %s", path));
    ck_assert_int_eq(dataset_info(dataset)->classes, 4);
    float *x;
    void *y;
    read_part(dataset, DATASET_TRAIN, &x, &y);
    static const int64_t expected[] = {3, 1, 2, 1, 0};
    ck_assert_mem_eq(y, expected, sizeof expected);
    free(x), free(y);
    dataset_close(dataset);

    /* the validation file takes the numbers of the training file, whatever its columns' order */
    SCOPED_MEMORY char *second = path_in(folder, "v.csv");
    spill(second, "species,a\nsetosa,9\n", 18);
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: %s}", path, second));
    ck_assert_int_eq(dataset_info(dataset)->classes, 4);
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 1);
    read_part(dataset, DATASET_VALIDATION, &x, &y);
    ck_assert_int_eq(((int64_t *)y)[0], 1);
    ck_assert(x[0] == 9);
    free(x), free(y);
    dataset_close(dataset);
    spill(second, "species,a\n\"setosa\",9\nrose,8\n", 28);
    ck_failure(open_yaml(&dataset, true, "{path: %s, validation: %s}", path, second), STATUS_DATA,
               "v.csv:line 3: column 'species': class 'rose' is not in '");
    spill(second, "kind,a\nsetosa,9\n", 16);
    ck_failure(open_yaml(&dataset, true, "{path: %s, validation: %s}", path, second), STATUS_DATA,
               "v.csv: there is no column 'species', which is in '");
    spill(second, "a,species\n", 10);
    ck_failure(open_yaml(&dataset, true, "{path: %s, validation: %s}", path, second), STATUS_DATA,
               "v.csv: there are no validation rows");
}

/* Columns of a second file are read by name; another order is noted, of inputs as of targets. */
TEST(another_order_is_noted) {
    static const struct {
        const char *header;
        bool is_noted;
    } cases[] = {{"a,b,c,y,z,w\n", false}, {"y,z,w,a,b,c\n", false}, {"a,y,b,z,c,w\n", false}, {"b,a,c,y,z,w\n", true},
                 {"a,c,b,y,z,w\n", true},  {"a,b,c,z,y,w\n", true},  {"a,b,c,y,w,z\n", true}};
    write_csv("a,b,c,y,z,w\n1,2,3,4,5,6\n1,2,3,4,5,6\n");
    char *second = path_in(folder, "v.csv"), text[100];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *values = "abcyzw";
        size_t length = strlen(cases[i].header);
        memcpy(text, cases[i].header, length);
        for (size_t k = 0; k < length; k++) { /* a number that tells the column */
            char c = cases[i].header[k];
            text[length + k] = isalpha((unsigned char)c) ? (char)('1' + (strchr(values, c) - values)) : c;
        }
        spill(second, text, 2 * length);
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, false, "{path: %s, validation: %s, targets: [y, z, w]}", path, second));
        SCOPED_MEMORY float *x;
        SCOPED_MEMORY void *y;
        read_part(dataset, DATASET_VALIDATION, &x, &y);
        for (int k = 0; k < 3; k++) ck_assert(x[k] == (float)k + 1 && ((float *)y)[k] == (float)k + 4);
        struct string_list notes = dataset_notes(dataset);
        bool is_noted = false;
        for (size_t n = 0; n < notes.count; n++) is_noted = is_noted || strstr(notes.items[n], "another order");
        ck_assert_msg(is_noted == cases[i].is_noted, "%s", cases[i].header);
    }
    free(second);
}

/* Writes a header of [count] columns and y, and a row with the number of each. */
static void write_wide(const char *file, size_t count, bool is_reversed) {
    SCOPED_TEXT text = {0};
    for (size_t i = 0; i < count; i++) text_printf(&text, "column_%zu,", is_reversed ? count - 1 - i : i);
    text_add(&text, "y\n");
    for (size_t i = 0; i < count; i++) text_printf(&text, "%zu,", is_reversed ? count - 1 - i : i);
    text_add(&text, "1\n");
    spill(file, text_string(&text), text.length);
}

/* Columns of other files are found in a time that does not grow with the square of their number. */
TEST(many_columns_are_found_at_once) {
    enum { COLUMNS = 50000 };
    SCOPED_MEMORY char *first = path_in(folder, "v1.csv"), *second = path_in(folder, "v2.csv");
    write_wide(path, COLUMNS, false);
    write_wide(first, COLUMNS, true);
    write_wide(second, COLUMNS, false);
    SCOPED_DATASET dataset;
    double start = cpu_seconds();
    ck_ok(open_yaml(&dataset, false, "{path: %s, validation: {path: %s/v?.csv}}", path, folder));
    ck_assert_msg(cpu_seconds() - start < 10, "%g s", cpu_seconds() - start);
    SCOPED_MEMORY float *x;
    SCOPED_MEMORY void *y;
    read_part(dataset, DATASET_VALIDATION, &x, &y);
    for (size_t i = 0; i < 2 * COLUMNS; i++) ck_assert(x[i] == (float)(i % COLUMNS));
}

/* So are the rules of columns. */
TEST(many_rules_are_found_at_once) {
    enum { COLUMNS = 32000 };
    struct text yaml = {0};
    struct dataset *dataset;
    write_wide(path, COLUMNS, false);
    text_printf(&yaml, "path: %s\ntargets: [y]\ncolumns:\n", path);
    for (size_t i = 0; i < COLUMNS; i++) text_printf(&yaml, " column_%zu: %s\n", i, i % 2 ? "ignore" : "number");
    double start = cpu_seconds();
    ck_ok(open_yaml(&dataset, false, "%s", text_string(&yaml)));
    ck_assert_uint_eq(dataset_info(dataset)->input_size, COLUMNS / 2);
    dataset_close(dataset);
    text_free(&yaml);
    ck_assert_msg(cpu_seconds() - start < 10, "%g s", cpu_seconds() - start);
}

/* In other files a column without a name is found by its place, and its name is not that of another one. */
TEST(columns_without_a_name_in_several_files) {
    const float x[] = {1, 2, 4, 5}, y[] = {3, 6};
    SCOPED_MEMORY char *other = path_in(folder, "t2.csv");
    static const struct {
        const char *first, *second, *keys, *message;
    } cases[] = {
        {"a,,y\n1,2,3\n", "a,,y\n4,5,6\n", "columns: {'Unnamed: 1': number}", NULL},
        {"a,,y\n1,2,3\n", "'Unnamed: 1',y,a\n5,6,4\n", "columns: {'Unnamed: 1': number}", NULL},
        {"a,'Unnamed: 1',y\n1,2,3\n", "a,,y\n4,5,6\n", "targets: y", "t2.csv: there is no column 'Unnamed: 1', which"},
        {"a,b,y\n1,2,3\n", "a,b,b,y\n4,5,5,6\n", "targets: y", "t2.csv:line 1: duplicate column 'b'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[300];
        SCOPED_DATASET dataset = NULL;
        spill(other, cases[i].second, strlen(cases[i].second));
        snprintf(keys, sizeof keys, "%s, csv: {quote: \"'\"}, path: [%s, %s]", cases[i].keys, path, other);
        write_csv(cases[i].first);
        status s = open_yaml(&dataset, false, "{%s}", keys);
        if (cases[i].message) {
            ck_failure(s, STATUS_DATA, cases[i].message);
            continue;
        }
        ck_ok(s);
        SCOPED_MEMORY float *inputs;
        SCOPED_MEMORY void *targets;
        read_part(dataset, DATASET_TRAIN, &inputs, &targets);
        for (size_t k = 0; k < 4; k++) ck_assert(inputs[k] == x[k]);
        for (size_t k = 0; k < 2; k++) ck_assert(((float *)targets)[k] == y[k]);
    }
}

/* Without targets the classes of a checkpoint are ignored. */
TEST(without_targets) {
    write_csv("a,species\n1,virginica\n2,setosa\n");
    static const char *names[] = {"setosa", "virginica"};
    char yaml[600];
    struct dataset_config config;
    SCOPED_DOCUMENT document;
    SCOPED_DATASET dataset;
    snprintf(yaml, sizeof yaml, "path: %s", path);
    ck_ok(bind_yaml(&dataset_schema, yaml, &config, &document));
    config.request.classes = (struct string_list){names, 2};
    config.request.without_targets = true;
    ck_ok(dataset_open(&config, true, false, &dataset));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 2);
    ck_assert_uint_eq(dataset_info(dataset)->input_size, 1);
    ck_assert_uint_eq(dataset_info(dataset)->target_size, 0);
}

TEST(iris) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s/datasets/iris.csv, split: {test: 0.2, seed: 1}}", SOURCE_DIR));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows + info->validation_rows, 150);
    ck_assert_uint_eq(info->input_size, 4);
    ck_assert_int_eq(info->classes, 3);
}

struct wrong {
    bool wants_classes;
    const char *text, *keys, *sentence;
};

static const struct wrong wrongs[] = {
    {false, "", "", "t.csv: the file is empty"},
    {false, "\n\n", "", "t.csv: the file is empty"},
    {false, "a,y\n", "", "t.csv: there are no rows"},
    {false, "y\n1\n", "", "t.csv: there is no column for the inputs; the file has only: y"},
    {false, "a;y\n1;2\n", "csv: {delimiter: ','}",
     "t.csv:line 1: there is only one field, 'a;y'; set dataset.csv.delimiter"},
    {false, "a\tb;y\n1\t2;3\n", "csv: {delimiter: '|'}", "the fields, now '|'"},
    {false, "a;y\n1,5;2\n1.5;3\n", "", "t.csv:line 3: column 'a': '1.5' is not a number"},
    {false, "a;y\n1,5;2\n\"1,5,5\";3\n", "", "t.csv:line 3: column 'a': '1,5,5' is not a number"},
    {false, "a,y\n1,2", "csv: {encoding: utf-16}", "t.csv: UTF-16 text has an even number of bytes, this has 7"},
    {false, "a,y\n\xd8\xd8\xd8\xd8", "csv: {encoding: utf-16}", "t.csv: this is not UTF-16 text (byte 4)"},
    {false, "0,1\n1,0\n", "",
     "t.csv:line 1: expected a header with column names, but this is a row of numbers ('0', ...)"},
    {false, "0,5;1;2\n1,5;0;3\n", "",
     "t.csv:line 1: expected a header with column names, but this is a row of numbers ('0,5', ...)"},
    {false, "a;y\n1;2\n13,881;3\n9,999;4\n", "",
     "t.csv:line 3: '13,881' has a decimal comma or a separator of thousands, and no other"},
    {false, "a,y\n1,2\n\"1,234\",3\n", "", "'1,234' is not a number; if commas separate thousands, write dataset"},
    {false, "a,y\n1,2\n3,4,5,6\n", "csv: {decimal: ','}", "t.csv:line 3: there are 4 fields, but the header has 2"},
    {false, ",a,y\n0,1,2\n0,1,x\n", "", "t.csv:line 3: column 'y': 'x' is not a number"},
    {false, ",,\n0,1,2\n", "", "t.csv: there is no column for the inputs; the file has only: Unnamed: 0"},
    {false, "a,b,a\n1,2,3\n", "", "t.csv:line 1: duplicate column 'a'"},
    {false, "a,y\n1,2\n3\n", "", "t.csv:line 3: there are 1 fields, but the header has 2"},
    {false, "a,y\n1,2\n3,4,5\n", "", "t.csv:line 3: there are 3 fields, but the header has 2"},
    {false, "\n \na,y\n\n1,2\n \n\n\n1,x\n", "", "t.csv:line 9: column 'y': 'x' is not a number"},
    {false, "a,y\n1,2\n,4\n", "", "t.csv:line 3: column 'a': missing value"},
    {false, "a,y\n1,2\n3,\n", "", "t.csv:line 3: column 'y': missing value"},
    {false, "a,y\n1,2\nNA,4\n", "",
     "t.csv:line 3: column 'a': missing value; remove the row, or write dataset.columns: {a: {missing: median}}"},
    {false, "a,y\n1,2\nnan,4\n", "", "t.csv:line 3: column 'a': missing value"},
    {false, "a,y\n1,2\n0x10,4\n", "", "t.csv:line 3: column 'a': '0x10' is not a number"},
    {false, "a,y\n1,2\n1.5.2,4\n", "", "t.csv:line 3: column 'a': '1.5.2' is not a number"},
    {false, "a,y\n1,2\n1 5,4\n", "", "t.csv:line 3: column 'a': '1 5' is not a number"},
    {false, "a,y\n1,2\n1e999,4\n", "", "t.csv:line 3: column 'a': Inf is not a finite number"},
    {false, "a,y\n1,2\n1e39,4\n", "", "t.csv:line 3: column 'a': 1e+39 is too large for float32"},
    {false, "a,y\n1,2\n1,-1e39\n", "", "t.csv:line 3: column 'y': -1e+39 is too large for float32"},
    {false, "a,y\n1,red\n", "", "t.csv:line 2: column 'y': 'red' is not a number"},
    {true, "a,y\n1,0\n2,red\n", "", "t.csv:line 3: column 'y': 'red' is not a number"},
    {true, "a,y\n1,\"two\nlines\"\nx,red\n", "", "t.csv:line 4: column 'a': 'x' is not a number"},
    {true, "a,y\r1,\"two\rlines\"\rx,red\r", "", "t.csv:line 4: column 'a': 'x' is not a number"},
    {true, "a,y\r\n1,\"two\r\nlines\"\r\nx,red\r\n", "", "t.csv:line 4: column 'a': 'x' is not a number"},
    {true, "a,y\n1,red\n2,\n", "", "t.csv:line 3: column 'y': missing value"},
    {true, "a,y\n1,0\n2,0.25\n", "",
     "t.csv:line 3: column 'y': 0.25 is not a class; classes are integers from 0; for targets that are probabilities "
     "of classes, let the model end in log_softmax and use the loss {type: kl_div, reduction: batchmean}"},
    {true, "a,y\n1,0\n2,1.5\n", "", "t.csv:line 3: column 'y': 1.5 is not a class; classes are integers from 0"},
    {true, "a,y\n1,0\n2,-1\n", "", "t.csv:line 3: column 'y': -1 is not a class"},
    {true, "a,y\n1,0\n2,1e12\n", "", "t.csv:line 3: column 'y': 1e+12 is not a class"},
    {true, "a,y,z\n1,0,1.5\n", "targets: [y, z]", "t.csv:line 2: column 'z': 1.5 is not a class"},
    {false, "a,y\n1,\"2\n3,4\n", "", "t.csv:line 2: a quoted field is not closed"},
    {false, "a,y\n1,\"2\"3\n", "", "t.csv:line 2: text after the closing quote of a field"},
    {false, "alpha,beta,y\n1,2,3\n", "inputs: [alpha, betta]",
     "t.csv: there is no column 'betta'; did you mean 'beta'; the columns are: alpha, beta, y"},
    {false, "a,y\n1,2\n", "inputs: [a, a]", "t.csv: column 'a' is used twice, as input"},
    {false, "a,y\n1,2\n", "inputs: y", "t.csv: column 'y' is used twice, as input and as target"},
    {false, "a,y\n1,2\n", "split: 0.9", "t.csv: split.test 0.9 of 1 row leaves no training row"},
};

TEST(rejects) {
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct dataset *dataset;
        write_csv(wrongs[i].text);
        ck_failure(open_yaml(&dataset, wrongs[i].wants_classes, "{path: %s, %s}", path, wrongs[i].keys), STATUS_DATA,
                   wrongs[i].sentence);
        ck_assert_ptr_null(dataset);
    }
    spill(path, "a,y\n1,\0\n", 8);
    struct dataset *dataset;
    ck_failure(open_yaml(&dataset, false, "path: %s", path), STATUS_DATA, "t.csv:line 2: this is not UTF-8 text");
}

TEST(missing_files) {
    struct dataset *dataset;
    char here[4096], *sentence = NULL;
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    ck_assert_int_gt(asprintf(&sentence,
                              "(working directory %s; it is also not beside the config or in the parent folder): No "
                              "such file or directory",
                              here),
                     0);
    ck_failure(open_yaml(&dataset, false, "path: nowhere/x.csv"), STATUS_DATA,
               "cannot read the dataset 'nowhere/x.csv' ");
    ck_failure(open_yaml(&dataset, false, "path: nowhere/x.csv"), STATUS_DATA, sentence);
    ck_failure(open_yaml(&dataset, false, "{path: %s, format: csv}", folder), STATUS_DATA, "it is a folder");
    SCOPED_MEMORY char *pipe = path_in(folder, "pipe");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_failure(open_yaml(&dataset, false, "{path: %s, format: csv}", pipe), STATUS_DATA, "it is not a regular file");
    free(sentence);
}

/* Metadata without rows read; the same shape. */
TEST(metadata_only) {
    SCOPED_DATASET dataset;
    ck_ok(open_yaml_as("{path: " SOURCE_DIR "/datasets/wine.csv, split: {test: 0.2, seed: 42}}", true, true, &dataset));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 142);
    ck_assert_int_eq(dataset_info(dataset)->classes, 3);
    ck_assert_str_eq(dataset_info(dataset)->fingerprint, "");
}

/* Each single value changes the fingerprint, in the precision of the file; the order of rows too; the split does not.
 */
TEST(fingerprint) {
    static const char *const texts[] = {
        "a,b,y\n1,2,0\n3,4,1\n", "a,b,y\n1,2,0\n3,4,0\n", "a,b,y\n1,2,0\n3,4.0000000001,1\n",
        "a,b,y\n3,4,1\n1,2,0\n", "a,b,y\n1,2,0\n",        "a,b,y\n1.0,2,0\n3,4,1\n"};
    char hashes[6][65];
    for (int i = 0; i < 6; i++) {
        struct dataset *dataset;
        write_csv(texts[i]);
        ck_ok(open_yaml(&dataset, true, "{path: %s, split: %s}", path, i == 5 ? "0.5" : "0"));
        strcpy(hashes[i], dataset_info(dataset)->fingerprint);
        dataset_close(dataset);
        for (int k = 0; k < i && i < 5; k++) ck_assert_str_ne(hashes[k], hashes[i]);
    }
    ck_assert_str_eq(hashes[0], hashes[5]);
}

/* Every prefix and many flipped bytes of a file: a result or a failure, never a crash. */
TEST(damaged_files) {
    static const char text[] = "a,\"b \"\"x\"\"\",y\r\n1,\"2\",red\n-3.5e2,4,\"gre\"\"en\"\r\n5,6,red\n";
    size_t size = sizeof text - 1;
    unsigned state = 1;
    for (size_t i = 0; i < size * 20; i++) {
        char bytes[sizeof text];
        memcpy(bytes, text, sizeof text);
        size_t length = i < size ? i : size;
        for (int k = 0; i >= size && k < 3; k++) {
            state = state * 1664525u + 1013904223u;
            bytes[(state >> 8) % size] = "\",\n\r 0-e.x;\xff"[(state >> 24) % 12];
        }
        spill(path, bytes, length);
        SCOPED_DATASET dataset;
        status s = open_yaml(&dataset, true, "path: %s", path);
        ck_assert((s == OK) == (dataset != NULL));
        if (s != OK) ck_assert_int_eq(status_code(s), STATUS_DATA);
        status_free(s);
    }
}

CHECK_MAIN("csv")
