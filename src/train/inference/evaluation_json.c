/* The metrics of an evaluation; of classes the confusion matrix and the scores of each. */
#include "train/inference/evaluation_json.h"

#include <stddef.h>

static void add_class_json(const struct evaluation_result *r, const char *name, size_t offset, struct text *out) {
    text_printf(out, ",\"class_%s\":[", name);
    for (size_t c = 0; c < r->classes; c++) {
        struct class_scores scores = metric_class_scores(r->confusion, r->classes, c);
        text_add(out, c ? "," : "");
        text_add_double(out, *(const double *)((const char *)&scores + offset));
    }
    text_add(out, "]");
}

/* The scores of each class, and the labels of the classes. */
static void add_classes_json(const struct evaluation_result *r, const struct string_list *labels, struct text *out) {
    add_class_json(r, "precision", offsetof(struct class_scores, precision), out);
    add_class_json(r, "recall", offsetof(struct class_scores, recall), out);
    add_class_json(r, "f1", offsetof(struct class_scores, f1), out);
    add_class_json(r, "iou", offsetof(struct class_scores, iou), out);
    for (size_t c = 0; c < labels->count; c++) {
        text_add(out, c ? "," : ",\"labels\":[");
        text_add_json(out, labels->items[c]);
    }
    text_add(out, labels->count ? "]" : "");
}

/* Not finite: null. */
static void add_number_json(const char *name, double value, struct text *out) {
    text_printf(out, ",\"%s\":", name);
    text_add_double(out, value);
}

void evaluation_json_add(const struct evaluation_result *r, const char *part, const struct string_list *labels,
                         struct text *out) {
    text_printf(out, "{\"event\":\"eval\",\"part\":\"%s\",\"rows\":%lld", part, (long long)r->rows);
    add_number_json("loss", r->loss, out);
    if (r->has_accuracy) add_number_json("accuracy", r->accuracy, out);
    for (size_t i = 0; i < r->metric_count; i++) add_number_json(r->metrics[i].name, r->metrics[i].value, out);
    for (size_t i = 0; r->confusion && i < r->classes * r->classes; i++)
        text_printf(out, "%s%.10g%s",
                    i == 0                ? ",\"confusion_matrix\":[["
                    : i % r->classes == 0 ? "],["
                                          : ",",
                    r->confusion[i], i + 1 == r->classes * r->classes ? "]]" : "");
    if (r->confusion) add_classes_json(r, labels, out);
    text_add(out, "}\n");
}
