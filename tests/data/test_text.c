/* Text and token files: rows, vocabularies, and the message for each rejected file. ctest-labels: unit */
#include "data/text/vocabulary.h"
#include "open.h"

static char *folder, *path, *second;

static void setup(void) {
    folder = make_folder();
    path = path_in(folder, "t.txt");
    second = path_in(folder, "v.txt");
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
    free(second);
}

FIXTURE(setup, teardown)

static void write_text(const char *file, const char *text) { spill(file, text, strlen(text)); }

/* Row [position] of a part is inputs (size) and targets (size). */
static void check_row(struct dataset *dataset, enum dataset_part part, int64_t position, size_t size,
                      const int32_t *inputs, const int64_t *targets) {
    int32_t x[8];
    int64_t y[8];
    ck_assert_uint_eq(dataset_info(dataset)->input_size, size);
    ck_ok(dataset_read(dataset, part, &position, 1, x, y));
    ck_assert_mem_eq(x, inputs, size * sizeof *x);
    ck_assert_mem_eq(y, targets, size * sizeof *y);
}

/* The minGPT tutorial's CharDataset: len(data) - block_size rows, targets one character later. */
TEST(rows_are_views_of_the_text) {
    struct dataset *dataset;
    write_text(path, "hello world");
    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 4}}", path));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_str_eq(dataset_vocabulary(dataset), " dehlorw");
    ck_assert(info->input_kind == INPUT_TOKENS && info->target_kind == TARGET_CLASS);
    ck_assert_int_eq(info->vocabulary, 8);
    ck_assert_int_eq(info->classes, 8);
    ck_assert_uint_eq(info->train_rows, 7);
    ck_assert_uint_eq(info->target_size, 4);
    ck_assert_int_eq(info->input_shape[0], 4);
    ck_assert_uint_eq(dataset_target_bytes(info), 32);
    ck_assert(dataset_is_in_memory(dataset));
    check_row(dataset, DATASET_TRAIN, 0, 4, (int32_t[]){3, 2, 4, 4}, (int64_t[]){2, 4, 4, 5});
    check_row(dataset, DATASET_TRAIN, 6, 4, (int32_t[]){7, 5, 6, 4}, (int64_t[]){5, 6, 4, 1});
    dataset_close(dataset);

    /* the vocabulary is that of the truncated text */
    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2, truncate: 0.5, stride: 2}}", path));
    ck_assert_str_eq(dataset_vocabulary(dataset), "ehlo"); /* "hello" */
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 2);
    check_row(dataset, DATASET_TRAIN, 1, 2, (int32_t[]){2, 2}, (int64_t[]){2, 3});
    dataset_close(dataset);
}

TEST(characters_are_code_points) {
    SCOPED_DATASET dataset;
    write_text(path, "aé𝄞€a");
    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2}}", path));
    ck_assert_str_eq(dataset_vocabulary(dataset), "aé€𝄞");
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 3);
    check_row(dataset, DATASET_TRAIN, 1, 2, (int32_t[]){1, 3}, (int64_t[]){3, 2});
    check_row(dataset, DATASET_TRAIN, 2, 2, (int32_t[]){3, 2}, (int64_t[]){2, 0});
}

/* More than 256 and more than 65536 different characters: ids of 2 and 4 bytes. */
TEST(large_vocabularies) {
    for (int is_huge = 0; is_huge < 2; is_huge++) {
        uint32_t first = 0x10000, count = is_huge ? 70000 : 300; /* four bytes each */
        char *text = malloc((size_t)count * 4 + 1);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t code = first + i;
            const char bytes[] = {(char)(0xf0 | code >> 18), (char)(0x80 | (code >> 12 & 63)),
                                  (char)(0x80 | (code >> 6 & 63)), (char)(0x80 | (code & 63))};
            memcpy(text + (size_t)i * 4, bytes, 4);
        }
        spill(path, text, (size_t)count * 4);
        free(text);
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 3}}", path));
        ck_assert_int_eq(dataset_info(dataset)->vocabulary, count);
        int32_t last = (int32_t)count - 1;
        check_row(dataset, DATASET_TRAIN, count - 4, 3, (int32_t[]){last - 3, last - 2, last - 1},
                  (int64_t[]){last - 2, last - 1, last});
    }
}

TEST(splits_and_validation_files) {
    struct dataset *dataset;
    write_text(path, "abcabcabcabc");
    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2}, split: {test: 0.25, shuffle: false}}", path));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 7);
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 3);
    check_row(dataset, DATASET_VALIDATION, 0, 2, (int32_t[]){1, 2}, (int64_t[]){2, 0});
    dataset_close(dataset);

    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2}, split: {train: 0.75, seed: 7}}", path));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 7);
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 3);
    int64_t first = 5; /* of random_split, see test_split.c */
    check_row(dataset, DATASET_TRAIN, 0, 2, (int32_t[]){(int32_t)(first % 3), (int32_t)((first + 1) % 3)},
              (int64_t[]){(first + 1) % 3, (first + 2) % 3});
    dataset_close(dataset);

    write_text(second, "cab");
    ck_ok(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2, truncate: 0.5}, validation: %s}", path, second));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 4);
    check_row(dataset, DATASET_VALIDATION, 0, 2, (int32_t[]){2, 0}, (int64_t[]){0, 1});
    dataset_close(dataset);
    write_text(second, "ca\nb");
    ck_failure(open_yaml(&dataset, true, "{path: %s, text: {block_size: 2}, validation: %s}", path, second),
               STATUS_DATA, "v.txt: line 1: the character '\n' is not in '");
}

TEST(rejects_what_is_no_text) {
    struct dataset *dataset;
    write_text(path, "one\nna\xefve");
    ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_DATA,
               "t.txt: line 2: byte 7 of the file is not valid UTF-8; convert the file (iconv -f latin1 -t utf-8)");
    static const char *const malformed[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe2\x82"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        write_text(path, malformed[i]);
        ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_DATA, "byte 1 of the file is not valid UTF-8");
    }
    spill(path, "a\0b", 3);
    ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_DATA,
               "t.txt: line 1: byte 2 of the file is 0; this is not text");
    write_text(path, "abc");
    ck_failure(open_yaml(&dataset, true, "{path: %s, text: {block_size: 3}}", path), STATUS_DATA,
               "t.txt: 3 characters are used, but a row and its targets need block_size + 1 = 4; use a smaller "
               "block_size or a larger part of the file");
    write_text(path, "");
    ck_failure(open_yaml(&dataset, true, "path: %s", path), STATUS_DATA, "t.txt: 0 characters are used");
    write_text(path, "abcdef");
    ck_failure(open_yaml(&dataset, true, "{path: %s, scale: standard, text: {block_size: 3}}", path), STATUS_USAGE,
               "dataset.scale: tokens cannot be scaled; remove it");
    ck_failure(open_yaml(&dataset, false, "{path: %s, text: {block_size: 3}}", path), STATUS_USAGE,
               "dataset: the target of a token is the next token, which is a class; use loss: cross_entropy");
}

TEST(fingerprints_differ) {
    char seen[4][65];
    static const char *const keys[] = {"block_size: 3", "block_size: 4", "block_size: 3, stride: 2",
                                       "block_size: 3, truncate: 0.9"};
    write_text(path, "to be or not to be");
    for (int i = 0; i < 4; i++) {
        SCOPED_DATASET dataset;
        ck_ok(open_yaml(&dataset, true, "{path: %s, text: {%s}}", path, keys[i]));
        strcpy(seen[i], dataset_info(dataset)->fingerprint);
        for (int k = 0; k < i; k++) ck_assert_str_ne(seen[i], seen[k]);
    }
}

TEST(vocabularies) {
    struct vocabulary *vocabulary;
    ck_ok(vocabulary_create("\n aé€", &vocabulary));
    ck_assert_uint_eq(vocabulary_size(vocabulary), 5);
    int32_t *ids;
    size_t count;
    ck_ok(vocabulary_encode(vocabulary, "€ é\n", &ids, &count));
    ck_assert_uint_eq(count, 4);
    ck_assert_mem_eq(ids, ((int32_t[]){4, 1, 3, 0}), sizeof(int32_t[4]));
    struct text text = {0};
    vocabulary_decode(vocabulary, ids, count, &text);
    ck_assert_str_eq(text_string(&text), "€ é\n");
    text_free(&text);
    free(ids);
    ck_ok(vocabulary_encode(vocabulary, "", &ids, &count));
    ck_assert_uint_eq(count, 0);
    free(ids);
    ck_failure(vocabulary_encode(vocabulary, "aü", &ids, &count), STATUS_USAGE,
               "the model's vocabulary does not contain the character 'ü' (U+00FC)");
    ck_failure(vocabulary_encode(vocabulary, "a\xff", &ids, &count), STATUS_USAGE,
               "byte 2 of the text is not valid UTF-8");
    vocabulary_destroy(vocabulary);
    ck_failure(vocabulary_create("ba", &vocabulary), STATUS_DATA,
               "the vocabulary is damaged: byte 2 begins no valid character");
    ck_failure(vocabulary_create("aa", &vocabulary), STATUS_DATA, "the vocabulary is damaged: byte 2 ");
    ck_failure(vocabulary_create("a\xff", &vocabulary), STATUS_DATA, "the vocabulary is damaged: byte 2 ");
}

/* ---- token files ---- */

TEST(token_files) {
    struct dataset *dataset;
    SCOPED_MEMORY char *file = path_in(folder, "t.bin");
    const uint8_t narrow[] = {1, 0, 2, 0, 3, 1, 4, 0, 5, 0, 6, 0, 7, 0}; /* 1 2 259 4 5 6 7 */
    spill(file, narrow, sizeof narrow);
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 3}}", file));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_int_eq(info->vocabulary, 260);
    ck_assert_uint_eq(info->train_rows, 2);
    ck_assert(!dataset_is_in_memory(dataset));
    ck_assert_ptr_null(dataset_vocabulary(dataset));
    check_row(dataset, DATASET_TRAIN, 0, 3, (int32_t[]){1, 2, 259}, (int64_t[]){2, 259, 4});
    check_row(dataset, DATASET_TRAIN, 1, 3, (int32_t[]){4, 5, 6}, (int64_t[]){5, 6, 7});
    dataset_close(dataset);
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 3, stride: 1, vocabulary: 1000}}", file));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 4);
    ck_assert_int_eq(dataset_info(dataset)->classes, 1000);
    check_row(dataset, DATASET_TRAIN, 3, 3, (int32_t[]){4, 5, 6}, (int64_t[]){5, 6, 7});
    dataset_close(dataset);

    const uint8_t wide[] = {1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0}; /* 1 65536 3 */
    spill(file, wide, sizeof wide);
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 1, dtype: uint32}}", file));
    ck_assert_int_eq(dataset_info(dataset)->vocabulary, 65537);
    check_row(dataset, DATASET_TRAIN, 1, 1, (int32_t[]){65536}, (int64_t[]){3});
    dataset_close(dataset);
}

TEST(rejects_wrong_token_files) {
    struct dataset *dataset;
    SCOPED_MEMORY char *file = path_in(folder, "t.bin"), *other = path_in(folder, "v.bin");
    const uint8_t seven[] = {1, 0, 2, 0, 3, 1, 4}, large[] = {255, 255, 255, 255, 255, 255, 255, 255};
    const uint8_t four[] = {1, 0, 2, 0, 3, 0, 4, 0};
    int64_t position = 0, y[2];
    int32_t x[2];
    spill(file, seven, sizeof seven);
    ck_failure(open_yaml(&dataset, true, "path: %s", file), STATUS_DATA,
               "t.bin: its size, 7 bytes, is not a multiple of 2: it has no tokens of type uint16");
    spill(file, seven, 6);
    ck_failure(open_yaml(&dataset, true, "path: %s", file), STATUS_DATA,
               "t.bin: 3 tokens are used, but a row and its targets need block_size + 1 = 1025");
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 2, vocabulary: 10}}", file));
    ck_failure(dataset_read(dataset, DATASET_TRAIN, &position, 1, x, y), STATUS_DATA,
               "t.bin: token number 2 is 259, but the vocabulary has 10 (dataset.tokens.vocabulary); is "
               "dataset.tokens.dtype correct?");
    dataset_close(dataset);
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 2, vocabulary: 259}}", file));
    ck_failure(dataset_read(dataset, DATASET_TRAIN, &position, 1, x, y), STATUS_DATA,
               "t.bin: token number 2 is 259, but the vocabulary has 259");
    dataset_close(dataset);
    spill(file, large, sizeof large);
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 1, dtype: uint32}}", file), STATUS_DATA,
               "t.bin: token 4294967295 is too large; is dataset.tokens.dtype correct?");
    spill(file, four, sizeof four);
    spill(other, seven, 6);
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: %s, tokens: {block_size: 2}}", file, other));
    ck_failure(dataset_read(dataset, DATASET_VALIDATION, &position, 1, x, y), STATUS_DATA,
               "v.bin: token number 2 is 259, but the vocabulary has 5");
    ck_assert_int_eq(truncate(file, 4), 0);
    ck_failure(dataset_read(dataset, DATASET_TRAIN, &position, 1, x, y), STATUS_DATA,
               "t.bin: the file was truncated after it was opened");
    dataset_close(dataset);
}

/* The loader's batches, with the thread that reads ahead and without: targets are (rows, block_size). */
TEST(batches_of_tokens) {
    SCOPED_MEMORY char *file = path_in(folder, "t.bin");
    uint16_t tokens[101];
    for (uint16_t i = 0; i < 101; i++) tokens[i] = i;
    spill(file, tokens, sizeof tokens);
    SCOPED_DATASET dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {block_size: 5}}", file));
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 20);
    const struct sampler_config sampler = {.batch_size = 3, .global_batch_size = SCHEMA_NO_INT};
    for (int64_t prefetch = 0; prefetch <= 2; prefetch++) {
        struct loader *loader;
        struct batch batch;
        ck_ok(loader_create(dataset, &sampler, 3, 1, 2, prefetch, &loader));
        for (int32_t at = 0; at < 10; at += 3) {
            ck_ok(loader_next(loader, &batch));
            ck_assert_uint_eq(batch.rows, at < 9 ? 3 : 1);
            const int32_t *x = (const int32_t *)(const void *)batch.inputs;
            const int64_t *y = batch.targets;
            for (int32_t i = 0; i < (int32_t)batch.rows * 5; i++) {
                int32_t row = 1 + 2 * (at + i / 5);
                ck_assert_int_eq(x[i], row * 5 + i % 5);
                ck_assert_int_eq(y[i], row * 5 + i % 5 + 1);
            }
        }
        loader_destroy(loader);
    }
}

CHECK_MAIN("text")
