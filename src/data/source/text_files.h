/* text_files: the contents of one or more text files, one after another as `cat` writes them, checked to be UTF-8. */
#ifndef DATA_TEXT_FILES_H
#define DATA_TEXT_FILES_H

#include "data/source/source.h"

/* Zero-initialise. */
struct text_files {
    char *text; /* (size) UTF-8 without NUL, and FILE_PADDING NULs */
    size_t size;
    size_t characters;      /* code points of [text] */
    size_t count;           /* of files */
    const char **paths;     /* (count); they belong to the caller */
    size_t *ends;           /* (count): in [text] */
    struct text what_files; /* for messages: "a.txt", "a.txt and 2 more files" */
};

/* Reads [path] and then [others]; STATUS_DATA for bytes that are not text. All three must exist until text_files_free.
 */
status text_files_read(struct text_files *files, const char *path, const struct string_list *others);
void text_files_free(struct text_files *files);

/* "<path>: line <n>: <cause>" for byte [at] of the text. */
status text_files_prefix(const struct text_files *files, size_t at, status cause);

/* Adds "a.txt", or with [others] "a.txt and 2 more files". */
void files_describe(const char *path, const struct string_list *others, struct text *out);

#endif
