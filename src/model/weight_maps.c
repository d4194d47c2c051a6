/* One table of rules per architecture. A rule `**` at the end states that all other tensors have PyTorch's layout. */
#include "model/weight_maps.h"

#include <stddef.h>

/* Conv1D of GPT-2 stores (in, out). */
static const struct ready_rule gpt2[] = {
    {"h.*.attn.bias", {"skip"}}, /* the causal mask */
    {"h.*.attn.masked_bias", {"skip"}},
    {"h.*.attn.c_attn.weight", {"h.*.attn.c_attn.weight", "transpose"}},
    {"h.*.attn.c_proj.weight", {"h.*.attn.c_proj.weight", "transpose"}},
    {"h.*.mlp.c_fc.weight", {"h.*.mlp.c_fc.weight", "transpose"}},
    {"h.*.mlp.c_proj.weight", {"h.*.mlp.c_proj.weight", "transpose"}},
    {"**", {"**", "as is"}},
    {NULL, {NULL}},
};

/* The names of Meta's code, with q, k and v in one layer. */
static const struct ready_rule llama[] = {
    {"embed_tokens.weight", {"tok_embeddings.weight"}},
    {"layers.*.input_layernorm.weight", {"layers.*.attention_norm.weight"}},
    {"layers.*.self_attn.q_proj.*", {"layers.*.wqkv.*", "part 1 of 3"}},
    {"layers.*.self_attn.k_proj.*", {"layers.*.wqkv.*", "part 2 of 3"}},
    {"layers.*.self_attn.v_proj.*", {"layers.*.wqkv.*", "part 3 of 3"}},
    {"layers.*.self_attn.o_proj.*", {"layers.*.wo.*"}},
    {"layers.*.self_attn.rotary_emb.inv_freq", {"skip"}},
    {"layers.*.post_attention_layernorm.weight", {"layers.*.ffn_norm.weight"}},
    {"layers.*.mlp.gate_proj.*", {"layers.*.w1.*"}},
    {"layers.*.mlp.up_proj.*", {"layers.*.w3.*"}},
    {"layers.*.mlp.down_proj.*", {"layers.*.w2.*"}},
    {"norm.weight", {"norm.weight"}},
    {"lm_head.weight", {"output.weight"}},
    {NULL, {NULL}},
};

/* Without token types the first one is added to every position. */
static const struct ready_rule bert[] = {
    {"embeddings.word_embeddings.weight", {"word_embeddings.weight"}},
    {"embeddings.position_embeddings.weight", {"position_embeddings.weight"}},
    {"embeddings.token_type_embeddings.weight", {"position_embeddings.weight", "add row 0"}},
    {"embeddings.position_ids", {"skip"}},
    {"embeddings.LayerNorm.*", {"embeddings_norm.*"}},
    {"encoder.layer.*.attention.self.query.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"encoder.layer.*.attention.self.key.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"encoder.layer.*.attention.self.value.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"encoder.layer.*.attention.output.dense.*", {"layer.*.attention.out_proj.*"}},
    {"encoder.layer.*.attention.output.LayerNorm.*", {"layer.*.attention_norm.*"}},
    {"encoder.layer.*.intermediate.dense.*", {"layer.*.intermediate.*"}},
    {"encoder.layer.*.output.dense.*", {"layer.*.output.*"}},
    {"encoder.layer.*.output.LayerNorm.*", {"layer.*.output_norm.*"}},
    {"pooler.dense.*", {"pooler.*"}},
    {"cls.predictions.transform.dense.*", {"transform.*"}},
    {"cls.predictions.transform.LayerNorm.*", {"transform_norm.*"}},
    {"cls.predictions.decoder.*", {"decoder.*"}},
    {"cls.predictions.bias", {"decoder.bias"}},
    {NULL, {NULL}},
};

static const struct ready_rule vit[] = {
    {"embeddings.cls_token", {"class_token.weight", "reshape"}},
    {"embeddings.position_embeddings", {"position_embeddings.weight", "reshape"}},
    {"embeddings.patch_embeddings.projection.*", {"patch_embedding.*"}},
    {"encoder.layer.*.layernorm_before.*", {"layer.*.norm_before.*"}},
    {"encoder.layer.*.attention.attention.query.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"encoder.layer.*.attention.attention.key.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"encoder.layer.*.attention.attention.value.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"encoder.layer.*.attention.output.dense.*", {"layer.*.attention.out_proj.*"}},
    {"encoder.layer.*.layernorm_after.*", {"layer.*.norm_after.*"}},
    {"encoder.layer.*.intermediate.dense.*", {"layer.*.intermediate.*"}},
    {"encoder.layer.*.output.dense.*", {"layer.*.output.*"}},
    {"layernorm.*", {"norm.*"}},
    /* the names of transformers 5 in memory */
    {"layers.*.layernorm_before.*", {"layer.*.norm_before.*"}},
    {"layers.*.attention.q_proj.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"layers.*.attention.k_proj.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"layers.*.attention.v_proj.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"layers.*.attention.o_proj.*", {"layer.*.attention.out_proj.*"}},
    {"layers.*.layernorm_after.*", {"layer.*.norm_after.*"}},
    {"layers.*.mlp.fc1.*", {"layer.*.intermediate.*"}},
    {"layers.*.mlp.fc2.*", {"layer.*.output.*"}},
    {NULL, {NULL}},
};

static const struct ready_rule resnet[] = {
    {"layer*.*.downsample.**", {"layer*.*.shortcut.**"}},
    {NULL, {NULL}},
};

const struct ready_map weight_maps[] = {
    {"gpt2", "transformer.", gpt2}, {"llama", "model.", llama}, {"bert", "bert.", bert},
    {"vit", "vit.", vit},           {"resnet", "", resnet},     {NULL, NULL, NULL},
};
