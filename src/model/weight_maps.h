/* weight_maps: the maps that come with the program. The names of parameters are those of the configs in
 * docs/pytorch.md.
 */
#ifndef MODEL_WEIGHT_MAPS_H
#define MODEL_WEIGHT_MAPS_H

struct ready_rule {
    const char *pattern;
    const char *items[2]; /* as in the rules of a config */
};

struct ready_map {
    const char *name, *prefix;
    const struct ready_rule *rules; /* ends with pattern NULL */
};

extern const struct ready_map weight_maps[]; /* ends with name NULL */

#endif
