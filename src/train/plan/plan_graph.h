/* plan_graph: the model of a plan as a drawing for Graphviz (`ddptrain check --dot`). */
#ifndef TRAIN_PLAN_GRAPH_H
#define TRAIN_PLAN_GRAPH_H

#include "base/text.h"
#include "model/model.h"

/* Adds a directed graph in the DOT language: a node for each input, layer that computes something, and sum, with name,
 * type, shape of a row and parameters; an edge for each tensor that one passes to another. */
void plan_graph(const struct model *model, const char *name, struct text *out);

#endif
