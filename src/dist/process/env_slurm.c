/* Parses Slurm's two compact lists, hosts ("n[1-2,05],m7") and counts ("2(x3),1"), without the scontrol command. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/process/env_slurm.h"

#define MAX_HOSTS (1 << 20)

/* Expands a list, counts its hosts and copies host [index]; -1: none. */
struct expansion {
    int index, count;
    char *host;
    size_t size;
};

static bool put(struct expansion *expansion, const char *prefix, size_t prefix_length, const char *number,
                const char *suffix, size_t suffix_length) {
    if (expansion->count++ != expansion->index) return true;
    int length = snprintf(expansion->host, expansion->size, "%.*s%s%.*s", (int)prefix_length, prefix, number,
                          (int)suffix_length, suffix);
    return length >= 0 && (size_t)length < expansion->size;
}

/* "1-2,05": numbers keep their width, with leading zeros. */
static bool expand_ranges(struct expansion *expansion, const char *prefix, size_t prefix_length, const char *ranges,
                          const char *end, const char *suffix, size_t suffix_length) {
    while (ranges < end) {
        char *after;
        if (!isdigit((unsigned char)*ranges)) return false;
        long first = strtol(ranges, &after, 10), last = first;
        int width = (int)(after - ranges);
        if (*after == '-') {
            if (!isdigit((unsigned char)after[1])) return false;
            last = strtol(after + 1, &after, 10);
        }
        if (width > 18 || last < first || last - first >= MAX_HOSTS || expansion->count > MAX_HOSTS) return false;
        if (after != end && *after != ',') return false;
        for (long n = first; n <= last; n++) {
            char number[40];
            snprintf(number, sizeof number, "%0*ld", width, n);
            if (!put(expansion, prefix, prefix_length, number, suffix, suffix_length)) return false;
        }
        ranges = after == end ? end : after + 1;
    }
    return true;
}

/* One entry: a name with at most one bracket. */
static bool expand_entry(struct expansion *expansion, const char *entry, size_t length) {
    const char *open = memchr(entry, '[', length), *end = entry + length;
    if (length == 0) return false;
    if (!open) return !memchr(entry, ']', length) && put(expansion, entry, length, "", "", 0);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close || close == open + 1 || memchr(close + 1, '[', (size_t)(end - close - 1))) return false;
    return expand_ranges(expansion, entry, (size_t)(open - entry), open + 1, close, close + 1,
                         (size_t)(end - close - 1));
}

static bool expand(struct expansion *expansion, const char *list) {
    while (*list) {
        size_t length = 0;
        for (bool inside = false; list[length] && (inside || list[length] != ','); length++)
            inside = list[length] == '[' || (inside && list[length] != ']');
        if (!expand_entry(expansion, list, length)) return false;
        list += length;
        if (*list == ',' && !*++list) return false;
    }
    return true;
}

bool slurm_host(const char *list, int index, char *host, size_t size) {
    struct expansion expansion = {.index = index, .host = host, .size = size};
    return expand(&expansion, list) && expansion.count > index;
}

int slurm_host_count(const char *list) {
    struct expansion expansion = {.index = -1};
    return expand(&expansion, list) ? expansion.count : 0;
}

int slurm_count(const char *list, int index) {
    while (isdigit((unsigned char)*list)) {
        char *after;
        long count = strtol(list, &after, 10), times = 1;
        if (after[0] == '(' && after[1] == 'x') {
            times = strtol(after + 2, &after, 10);
            if (*after++ != ')') return 0;
        }
        if (count < 1 || count > MAX_HOSTS || times < 1) return 0;
        if (index < times) return (int)count;
        index -= (int)times;
        if (*after != ',') return 0;
        list = after + 1;
    }
    return 0;
}
