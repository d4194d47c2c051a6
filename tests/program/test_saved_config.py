"""model.init_from of a folder of transformers' save_pretrained: the layers against its config.json. ctest-labels: unit"""
import json, os

import program
from program import DATA, USAGE
import test_pretrained
from test_pretrained import BERT, GPT2, LLAMA, ROWS, TOKENS, VIT, read_file
from test_weights import write_safetensors

SAVED = {  # what transformers writes for these files, but for keys that are not compared
    "gpt2": {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_head": 4, "n_inner": None},
    "llama": {"head_dim": 4, "hidden_act": "silu", "model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
              "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
    "bert": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_attention_heads": 4},
    "vit": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_attention_heads": 4, "pooler_act": "tanh"},
}
CONFIGS = {"gpt2": TOKENS + GPT2, "llama": TOKENS + LLAMA, "bert": TOKENS + BERT, "vit": ROWS + VIT}


class SavedConfig(program.Case):
    rows, tokens = test_pretrained.Pretrained.rows, test_pretrained.Pretrained.tokens

    def setUp(self):
        super().setUp()
        with open(os.path.join(program.SOURCE, "tests/vectors/pretrained/pretrained.json"), encoding="utf-8") as f:
            self.expected = json.load(f)
        os.mkdir(self.path("hf"))

    def check(self, name, changes=None, code=0, replace=("", ""), options=(), file="hf"):
        """Checks the config of the model [name] with a text replaced; [changes]: of config.json. What it prints."""
        if name == "vit":
            self.rows(self.expected[name]["inputs"])
        else:
            self.tokens(name)
        write_safetensors(self.path("hf/model.safetensors"), read_file(f"{name}.safetensors"))
        self.write("hf/config.json", json.dumps({**SAVED[name], **(changes or {})}))
        text = CONFIGS[name].replace(f"{name}.safetensors", file)
        self.assertIn(replace[0], text)
        self.write("test.yaml", text.replace(*replace))
        out, err = self.run_program("check", "test.yaml", *options, code=code)
        return err if code else out

    def test_models_that_agree(self):
        for name in SAVED:
            with self.subTest(name):
                out = self.check(name)
                self.assertIn("model.init_from: hf/model.safetensors: ", out)
                self.assertNotIn("warning", out)

    def test_heads(self):
        err = self.check("gpt2", code=USAGE, replace=("heads: 4", "heads: 2"))
        self.assertRegex(err, r"^test.yaml:\d+:25: model.layers.2.repeat.layers.0.residual.layers.1.sequential.layers.1.scaled_dot_product_attention: "
                              r"heads is 2, but n_head of hf/config.json is 4; write `heads: 4`\n$")
        err = self.check("bert", code=USAGE, replace=("heads: 4", "heads: 8"))
        self.assertIn("attention: heads is 8, but num_attention_heads of hf/config.json is 4; write `heads: 4`\n", err)
        wide = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
        err = self.check("llama", wide, USAGE)
        for line in ("rotary_embedding: head_size is 4, but head_dim of hf/config.json is 8; write `head_size: 8`",
                     "num_kv_heads is 2, but num_key_value_heads of hf/config.json is 1; write `num_kv_heads: 1`",
                     "heads is 4, but num_attention_heads of hf/config.json is 2; write `heads: 2`"):
            self.assertIn(line, err)
        self.assertEqual(len(err.splitlines()), 3)
        self.assertNotIn("head_size", self.check("llama", {**wide, "partial_rotary_factor": 0.5}, USAGE))

    def test_rotary_embeddings_and_norms(self):
        for changes in ({"rope_parameters": {"rope_theta": 500000.0}}, {"rope_parameters": None, "rope_theta": 500000}):
            err = self.check("llama", changes, USAGE)
            self.assertRegex(err, r"^test.yaml:21:19: \S+rotary_embedding: base is 10000, but rope_theta of hf/config.json is 500000; write `base: 500000`\n$")
        err = self.check("llama", {"rms_norm_eps": 1e-6}, USAGE)
        self.assertEqual(err.count("rms_norm: eps is 1e-05, but rms_norm_eps of hf/config.json is 1e-06; write `eps: 1e-06`\n"), 3)
        self.check("llama", {"rms_norm_eps": 1e-6}, replace=("1.0e-5", "1e-06"))
        err = self.check("llama", {}, USAGE, replace=("1.0e-5", "0"))
        self.assertEqual(err.count("rms_norm: eps is 0, but rms_norm_eps of hf/config.json is 1e-05; write `eps: 1e-05`\n"), 3)
        self.assertIn("layer_norm: eps is 1e-05, but layer_norm_epsilon of hf/config.json is 0.1; write `eps: 0.1`\n", self.check("gpt2", {"layer_norm_epsilon": 0.1}, USAGE))
        self.assertIn("layer_norm: eps is 1e-12, but layer_norm_eps of hf/config.json is 1e-05;", self.check("vit", {"layer_norm_eps": 1e-5}, USAGE))
        for changes in ({"rope_scaling": {"rope_type": "llama3"}, "rope_parameters": None}, {"rope_scaling": {"type": "llama3"}, "rope_parameters": None},
                        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "llama3"}}):
            self.assertRegex(self.check("llama", changes), r"\n  warning: (rope_)?type of hf/config.json is llama3, and rotary_embedding computes only the default one\n")

    def test_what_no_layer_computes(self):
        for name, key, value, neutral in (("llama", "embedding_multiplier", 12, 1), ("llama", "logits_scaling", 0.5, None), ("llama", "attention_multiplier", 0.2, None),
                                          ("gpt2", "scale_attn_by_inverse_layer_idx", True, False), ("llama", "final_logit_softcapping", 30.0, None)):
            self.assertIn(f"\n  warning: {key} of hf/config.json is {value + 0:g}, and no layer here computes this\n", self.check(name, {key: value}))
            self.assertNotIn("warning", self.check(name, {key: neutral}))
        self.assertIn("\n  warning: sliding_window of hf/config.json is 2, and attention here is to all of the ", self.check("llama", {"sliding_window": 2}))
        for changes in ({"sliding_window": 4096}, {"sliding_window": 2, "use_sliding_window": False}, {"sliding_window": None}, {"model_type": "mistral"}):
            self.assertNotIn("warning", self.check("llama", changes))
        self.assertIn("\n  warning: model_type of hf/config.json is gemma, which may compute something else with the same weights: compare some outputs\n",
                      self.check("llama", {"model_type": "gemma"}))

    def test_activations(self):
        tanh = "{gelu: {approximate: tanh}}"
        err = self.check("gpt2", code=USAGE, replace=(tanh, "gelu"))
        self.assertRegex(err, r"gelu: the activation is `gelu`, but activation_function of hf/config.json is gelu_new; write `gelu: \{approximate: tanh\}`\n$")
        for name in ("gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"):
            self.check("gpt2", {"activation_function": name})
        self.assertIn("the activation is `relu`, but", self.check("gpt2", code=USAGE, replace=(tanh, "relu")))
        self.assertIn("the activation is `silu`, but", self.check("gpt2", code=USAGE, replace=(tanh, "silu")))
        self.check("gpt2", {"activation_function": "relu"}, replace=(tanh, "relu"))
        self.check("llama", {"hidden_act": "swish"})
        self.check("bert", {"hidden_act": "relu", "hidden_activation": "gelu_python"})
        self.assertIn("is relu; write `relu`", self.check("vit", {"hidden_act": "relu"}, USAGE))
        self.check("vit", replace=("    - flatten\n", "    - flatten\n    - tanh\n"))
        self.assertIn("\n  warning: activation_function of hf/config.json is quick_gelu, which is not compared with", self.check("gpt2", {"activation_function": "quick_gelu"}))

    def test_partial_models_get_warnings(self):
        """Their layers may be the user's own."""
        out = self.check("llama", {"rms_norm_eps": 1e-6, "num_attention_heads": 2}, replace=("map: llama", "map: llama, partial: true"))
        self.assertRegex(out, r"tensors used(.|\n)*\n  warning: test.yaml:19:19: \S+: eps is 1e-05, but rms_norm_eps of hf/config.json is 1e-06; write `eps: 1e-06`\n  warning: ")
        self.assertEqual(out.count("warning: "), 4)

    def test_nothing_to_compare(self):
        for changes in ({"n_head": None}, {"n_head": "2"}, {"n_head": [2]}):
            self.check("gpt2", changes, replace=("heads: 4", "heads: 2"))
        os.rename(self.path("hf/model.safetensors"), self.path("hf/gpt2.safetensors"))
        self.write("hf/config.json", json.dumps(SAVED["gpt2"]))
        text = self.read("test.yaml")
        self.write("test.yaml", text.replace("file: hf", "file: hf/gpt2.safetensors"))
        self.run_program("check", "test.yaml")
        os.rename(self.path("hf/gpt2.safetensors"), self.path("hf/model.safetensors"))
        self.write("test.yaml", text)
        self.run_program("check", "test.yaml", code=USAGE)
        os.remove(self.path("hf/config.json"))
        self.run_program("check", "test.yaml")

    def test_a_file_of_the_folder(self):
        self.assertIn("write `heads: 4`", self.check("gpt2", code=USAGE, replace=("heads: 4", "heads: 2"), file="hf/model.safetensors"))
        text = self.read("test.yaml").replace("hf/model.safetensors", "model.safetensors")
        for name in ("model.safetensors", "config.json"):
            os.rename(self.path("hf", name), self.path(name))
        self.write("test.yaml", text)
        self.assertIn("of ./config.json is 4", self.run_program("check", "test.yaml", code=USAGE)[1])

    def test_many_differences(self):
        norms = "".join(f"    - layer_norm: {{name: n{i}, eps: 0.5}}\n" for i in range(12))
        self.write("hf/config.json", '{"layer_norm_eps": 1e-5}')
        write_safetensors(self.path("hf/model.safetensors"), {})
        self.rows([[0.0] * 4, [1.0] * 4])
        self.write("test.yaml", ROWS + "model:\n  init_from: hf\n  layers:\n" + norms + "    - linear: 2\n")
        err = self.run_program("check", "test.yaml", code=USAGE)[1]
        self.assertEqual(err.count("write `eps: 1e-05`\n"), 10)
        self.assertTrue(err.endswith("\n... and 2 more\n"), err)

    def test_wrong_files(self):
        self.check("gpt2")
        for text, sentence in (("[", "hf/config.json: not a JSON object: "), ("[]", "hf/config.json: not a JSON object; it describes the model beside it"),
                               ('{"n_head": 4, "n_head": 2}', "not a JSON object: duplicate"), (" " * (16 << 20) + "{}", "hf/config.json: not a JSON object")):
            self.write("hf/config.json", text)
            self.assertIn(sentence, self.run_program("check", "test.yaml", code=DATA)[1])
        os.remove(self.path("hf/config.json"))
        os.mkdir(self.path("hf/config.json"))
        self.assertIn("hf/config.json: not a JSON object", self.run_program("check", "test.yaml", code=DATA)[1])
