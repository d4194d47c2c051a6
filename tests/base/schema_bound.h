/* schema_bound: the example schema's configs, bound from a text. */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "schema_example.h"

/* A bound config; its problems are text, "" when there are none. */
struct bound {
    struct document *document;
    struct example config;
    char *problems;
};

static inline struct bound bind(const char *yaml) {
    struct bound b = {0};
    struct problems problems = {0};
    ck_assert_ptr_null(document_parse("c.yaml", yaml, strlen(yaml), &problems, &b.document));
    if (b.document)
        schema_bind(&example_schema, document_root(b.document), "", &example_schema, &b.config,
                    document_arena(b.document), &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    b.problems = strdup(status_message(s));
    status_free(s);
    problems_free(&problems);
    return b;
}

static inline struct bound bind_good(const char *yaml) {
    struct bound b = bind(yaml);
    ck_assert_msg(!*b.problems, "%s\n---\n%s", b.problems, yaml);
    return b;
}

static inline void unbind(struct bound *b) {
    document_destroy(b->document);
    free(b->problems);
}

/* Every key of the example, each on a line of its own. */
static const char all_keys[] = "name: x\n"
                               "seed: 1\n"
                               "sampler:\n"
                               "  batch_size: 8\n"
                               "  shuffle: true\n"
                               "  fraction: 0.5\n"
                               "  scale: none\n"
                               "model:\n"
                               "  layers:\n"
                               "    - linear:\n"
                               "        out: 3\n"
                               "        bias: true\n"
                               "        init:\n"
                               "          normal:\n"
                               "            std: 1\n"
                               "        name: fc\n"
                               "    - dropout:\n"
                               "        p: 0.5\n"
                               "    - sequential:\n"
                               "        times: 2\n"
                               "        layers: []\n"
                               "optimizer:\n"
                               "  type: adam\n"
                               "  lr: 0.1\n"
                               "  betas: [0, 0]\n"
                               "  weight_decay: 0\n"
                               "schedule: cosine\n"
                               "checkpoint:\n"
                               "  save_every:\n"
                               "    epochs: 1\n"
                               "  keep: 3\n"
                               "  resume: never\n"
                               "train:\n"
                               "  epochs: 3\n"
                               "  sizes: [1]\n"
                               "  tags: [a]\n"
                               "  clip: 1\n"
                               "  device: cpu\n"
                               "validation:\n"
                               "  path: x\n";
