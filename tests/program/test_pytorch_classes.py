# ctest-labels: unit
"""The table of docs/pytorch.md has every class of torch.nn and torch.optim once, and what it names exists."""
import os
import re
import unittest

SOURCE = os.environ.get("DDPTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# the classes of dir(torch.nn) and, without functions, torch.optim.__all__ of PyTorch 2.15
NN = """AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d
AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d
Bilinear Buffer CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Container
Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss
CrossMapLRN2d DataParallel Dropout Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold
FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh
HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d
LSTM LSTMCell LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d
LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear
LinearCrossEntropyLoss LinearCrossEntropyOptions
LocalResponseNorm LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d
MaxUnpool3d Mish Module ModuleDict ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention
NLLLoss NLLLoss2d PReLU PairwiseDistance Parameter ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN
RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign
SyncBatchNorm Tanh Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
TransformerEncoderLayer TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold UninitializedBuffer UninitializedParameter Upsample UpsamplingBilinear2d
UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d"""
OPTIM = """Adafactor Adadelta Adagrad Adam Adamax AdamW ASGD LBFGS lr_scheduler Muon NAdam Optimizer RAdam RMSprop Rprop SGD SparseAdam
swa_utils"""


def read(page):
    with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as f:
        return f.read()


class Classes(unittest.TestCase):
    def setUp(self):
        section = read("pytorch.md").split("## Every class of torch.nn and torch.optim\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.M)
        self.rows = [(re.findall(r"`([\w.]+)`", names), here) for names, here in rows]

    def test_each_class_has_one_row(self):
        names = sorted(name for row, _ in self.rows for name in row)
        self.assertEqual(names, sorted(NN.split() + ["optim." + name for name in OPTIM.split()]))

    def test_rows_name_what_exists(self):
        known = set(re.findall(r'^<a id="(?:model\.layers|loss|optimizer)\.(\w+)">', read("config.md"), re.M)) | {"train.ema", "schedule", "causal", "carry_state", "initial_state", "last_state"}
        for names, here in self.rows:
            for word in re.findall(r"`([\w.]+)`", here):
                self.assertIn(word, known, names)

    def test_a_class_that_the_reference_names_is_not_missing(self):
        """`(torch.nn.ReLU)` in the documentation of relu: the row of ReLU has `relu`."""
        here = {name: text for names, text in self.rows for name in names}
        found = 0
        for kind, text in re.findall(r"^### `(?:model\.layers|loss|optimizer)\.(\w+)`\n\n(.*)$", read("config.md"), re.M):
            for name in re.findall(r"\(torch\.(?:nn\.)?((?:optim\.)?[A-Z]\w+)", text):
                self.assertIn(f"`{kind}`", here[name], name)
                found += 1
        self.assertGreater(found, 80)
