/* The columns of a resume against those of the training. ctest-labels: unit */
#include "train/state/data_entries.h"

#include "check_main.h"
#include "files.h"

#define LIST(format, ...)                                                                                              \
    {                                                                                                                  \
        format, (struct named_column[]){__VA_ARGS__},                                                                  \
            sizeof(struct named_column[]){__VA_ARGS__} / sizeof(struct named_column)                                   \
    }

static const struct {
    struct column_list trained, now;
    const char *failure; /* NULL: none */
} cases[] = {
    {LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_TARGET}), LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_TARGET}),
     NULL},
    {LIST("csv", {"a", COLUMN_INPUT}), {"csv", NULL, 0}, NULL},
    {{"csv", NULL, 0}, LIST("csv", {"a", COLUMN_INPUT}), NULL},
    {LIST("csv", {"a", COLUMN_INPUT}), LIST("hdf5", {"x", COLUMN_INPUT}), NULL},
    {LIST("csv", {"alpha", COLUMN_INPUT}), LIST("csv", {"alphe", COLUMN_INPUT}),
     "t.h5: it was trained with the column 'alpha' as input, which the dataset now does not have (there is 'alphe'); "
     "use the same columns, or --fresh"},
    {LIST("csv", {"a", COLUMN_INPUT}), LIST("csv", {"zzzzzz", COLUMN_INPUT}),
     "t.h5: it was trained with the column 'a' as input, which the dataset now does not have; use the same"},
    {LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_TARGET}), LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_INPUT}),
     "'y' as target, which the dataset now has in another role"},
    {LIST("csv", {"a", COLUMN_INPUT}), LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_TARGET}),
     "it was trained without the column 'y', which the dataset now has as target"},
    {LIST("csv", {"a", COLUMN_INPUT}, {"b", COLUMN_INPUT}), LIST("csv", {"b", COLUMN_INPUT}, {"a", COLUMN_INPUT}),
     "the input columns of the dataset have another order than in training, and a resume needs the same order: a, b;"},
    {LIST("csv", {"a", COLUMN_INPUT}, {"y", COLUMN_TARGET}, {"z", COLUMN_TARGET}),
     LIST("csv", {"a", COLUMN_INPUT}, {"z", COLUMN_TARGET}, {"y", COLUMN_TARGET}),
     "the target columns of the dataset have another order than in training, and a resume needs the same order: y, z;"},
};

TEST_EACH(a_resume_needs_the_same_columns, cases) {
    status s = column_names_compare(&cases[_i].trained, &cases[_i].now, "t.h5", "--fresh");
    if (cases[_i].failure)
        ck_failure(s, STATUS_DATA, cases[_i].failure);
    else
        ck_ok(s);
}

/* In a time that does not grow with the square of their number. */
TEST(many_columns_are_compared_at_once) {
    enum { COLUMNS = 100000 };
    SCOPED_ARENA arena = arena_create();
    struct column_list trained = {"csv", arena_alloc(arena, COLUMNS * sizeof *trained.items), COLUMNS};
    for (size_t i = 0; i < COLUMNS; i++)
        trained.items[i] = (struct named_column){arena_printf(arena, "column_%zu", i), COLUMN_INPUT};
    struct column_list now = columns_copy(arena, &trained);
    double start = cpu_seconds();
    ck_ok(column_names_compare(&trained, &now, "t.h5", "start over"));
    struct string_list names = {arena_alloc(arena, (COLUMNS + 1) * sizeof *names.items), COLUMNS};
    for (size_t i = 0; i < COLUMNS; i++) names.items[COLUMNS - 1 - i] = trained.items[i].name;
    ck_ok(columns_check_key(&trained, COLUMN_INPUT, &names));
    names.items[names.count++] = "column_2";
    ck_failure(columns_check_key(&trained, COLUMN_INPUT, &names), STATUS_USAGE,
               "repeated column 'column_2'; the model");
    now.items[COLUMNS - 1].role = COLUMN_TARGET;
    ck_failure(column_names_compare(&trained, &now, "t.h5", "start over"), STATUS_DATA,
               "'column_99999' as input, which the dataset now has in another role");
    ck_assert_msg(cpu_seconds() - start < 10, "%g s", cpu_seconds() - start);
}

CHECK_MAIN("column_names")
