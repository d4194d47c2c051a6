"""Writes losses.json: PyTorch's losses and their gradients, in float64 from float32 inputs. Cases that the file has already keep
their numbers, whose last digits depend on PyTorch's version and the processor; --all writes all anew."""
import json, os, sys

import torch
from torch import nn

torch.manual_seed(5)
ROWS, OUT = 7, 5


def case(config, module, outputs, targets):
    x = outputs.double().requires_grad_()
    t = targets if targets.dtype == torch.int64 else targets.double()
    # PyTorch has the classes of a sequence in the second dimension
    loss = module(x.transpose(1, 2) if x.dim() == 3 else x, t)
    loss.backward()
    return {"config": config, "shape": list(outputs.shape[1:]), "outputs": outputs.flatten().tolist(),
            "targets": targets.flatten().tolist(), "loss": loss.item(), "gradient": x.grad.flatten().tolist()}


def case_of_lengths(config, module, outputs, targets, lengths):
    """The loss of the positions that are not padding, outputs (rows, positions, ...); a module whose rows are these positions."""
    x = outputs.double().requires_grad_()
    t = targets if targets.dtype == torch.int64 else targets.double()
    real = torch.arange(x.shape[1]) < torch.tensor(lengths)[:, None]
    loss = module(x[real], t[real] if t.numel() else t)
    loss.backward()
    return {"config": config, "shape": list(outputs.shape[1:]), "lengths": lengths, "outputs": outputs.flatten().tolist(),
            "targets": targets.flatten().tolist(), "loss": loss.item(), "gradient": x.grad.flatten().tolist()}


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


logits = 2 * torch.randn(ROWS, OUT)
sequence = torch.randn(3, 4, OUT)
classes, tokens = torch.randint(0, OUT, (ROWS,)), torch.randint(0, OUT, (3, 4))
ignored = tokens.clone()
ignored[0, 1] = ignored[2, 3] = -100
values, yes = torch.randn(ROWS, OUT), torch.rand(ROWS, OUT)
yes[0] = torch.tensor([0., 1, 1, 0, 1])
logs, other = torch.log_softmax(logits, 1), torch.log_softmax(values, 1)
shares = other.exp()
shares[0, 0] = 0
WEIGHT = "[0.5, 1, 2.5, 0, 1.75]"  # not OUT in sum: a loss that counts the classes instead must differ
weight = double(0.5, 1, 2.5, 0, 1.75)
met = values.clone()  # some outputs are equal to their targets
met[1] = logits[1]

counts = torch.randint(0, 6, (ROWS, OUT)).float()
hot = (yes > 0.5).float()
masks = torch.randn(2, 3, 4, 5)


def focal(alpha, gamma):
    """torchvision.ops.sigmoid_focal_loss(reduction="mean"), line for line."""
    def loss(inputs, targets):
        p = torch.sigmoid(inputs)
        ce_loss = nn.functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        loss = ce_loss * ((1 - p_t) ** gamma)
        if alpha >= 0:
            alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
            loss = alpha_t * loss
        return loss.mean()
    return loss


def dice(smooth):
    """monai.losses.DiceLoss(sigmoid=True, smooth_nr=smooth, smooth_dr=smooth); a row without channels is one mask."""
    def loss(inputs, targets):
        p = torch.sigmoid(inputs).flatten(2 if inputs.dim() > 2 else 1)
        t = targets.reshape(p.shape)
        return (1 - (2 * (p * t).sum(-1) + smooth) / (p.sum(-1) + t.sum(-1) + smooth)).mean()
    return loss


def pinball(quantile):
    """scikit-learn's mean_pinball_loss."""
    def loss(inputs, targets):
        d = inputs - targets
        return (torch.where(d > 0, 1 - quantile, torch.where(d < 0, -quantile, 0.0)) * d).mean()
    return loss


torch.manual_seed(6)
pairs, spread = torch.randn(ROWS, 6), torch.rand(ROWS, 6)
signs = torch.tensor([1., -1, 1, -1, -1, 1, -1])


def parts(module, count):
    """The parts of a row, one after the other, as the module's first inputs."""
    return lambda inputs, targets: module(*inputs.chunk(count, 1), targets)


def of_positions(module):
    """The classes are the last dimension; case() has moved them."""
    return lambda inputs, targets: module(inputs.transpose(1, 2).flatten(0, 1), targets.flatten(0, 1))


def gaussian(module):
    def loss(inputs, targets):
        mean, variance = inputs.chunk(2, 1)
        return module(mean, targets, variance)
    return loss


def triplet(module):
    return lambda inputs, targets: module(*inputs.chunk(3, 1))


def kl_normal(inputs, targets):
    mean, log_variance = inputs.chunk(2, 1)
    one = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    return torch.distributions.kl_divergence(one, torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum(1).mean()


torch.manual_seed(8)
steps, many = torch.log_softmax(2 * torch.randn(4, 6, OUT), 2), torch.log_softmax(torch.randn(3, 40, OUT), 2)
labels = torch.tensor([[1, 2, 2], [3, -100, -100], [4, 1, -100], [-100, -100, -100]])
long = torch.randint(1, OUT, (3, 15))
long[1, 9:] = 0
impossible = torch.tensor([[1, 1, 1, 1], [3, 2, -100, -100], [4, 4, 4, 4], [1, -100, -100, -100]])


def contrastive(temperature, symmetric):
    """open_clip's ClipLoss of one process, whose features CLIP normalises; not symmetric: one of its two terms."""
    def loss(inputs, targets):
        a, b = (nn.functional.normalize(part) for part in inputs.chunk(2, 1))
        logits, labels = a @ b.T / temperature, torch.arange(len(inputs))
        one = nn.functional.cross_entropy(logits, labels)
        return (one + nn.functional.cross_entropy(logits.T, labels)) / 2 if symmetric else one
    return loss


def ctc(padding=-100, **options):
    """Log-probabilities (rows, classes, steps) and targets that end before the first padding."""
    def loss(inputs, targets):
        lengths = [(row.tolist() + [padding]).index(padding) for row in targets]
        return nn.CTCLoss(**options)(inputs.permute(2, 0, 1), targets, (inputs.shape[2],) * len(inputs), tuple(lengths))
    return loss


torch.manual_seed(9)
LENGTHS = [3, 6, 1, 5]
words = 2 * torch.randn(4, 6, 6)
word_logs, word_shares = torch.log_softmax(words, 2), torch.rand(4, 6, 6).softmax(2)
word_spread, word_values, word_hot = torch.rand(4, 6, 6), torch.randn(4, 6, 3), (torch.rand(4, 6, 6) > 0.6).float()
word_signs = torch.where(torch.rand(4, 6) > 0.5, 1.0, -1.0)
word_classes = torch.randint(0, 6, (4, 6))
# a class twice, all classes, none; behind the first -1 nothing counts
lists = torch.tensor([[3, 0, -1, 1, 4], [2, 2, 0, -1, -1], [0, 1, 2, 3, 4], [-1, 0, 1, 2, 3], [4, -1, -1, -1, -1], [1, 3, 4, -1, 0], [0, 2, -1, -1, -1]])
word_lists = (torch.arange(144).reshape(4, 6, 6) * 7 % 11) % 7 - 1


def over_rows(module):
    """A sum, divided by the number of all rows."""
    return lambda inputs, targets: module(inputs, targets) / len(LENGTHS)


cases = [
    case("cross_entropy", nn.CrossEntropyLoss(), logits, classes),
    case("{type: cross_entropy, label_smoothing: 0.1}", nn.CrossEntropyLoss(label_smoothing=0.1), logits, classes),
    case("{type: cross_entropy, weight: %s}" % WEIGHT, nn.CrossEntropyLoss(weight=weight), logits, classes),
    case("{type: cross_entropy, ignore_index: %d}" % classes[0], nn.CrossEntropyLoss(ignore_index=int(classes[0])),
         logits, classes),
    case("cross_entropy", nn.CrossEntropyLoss(), sequence, tokens),
    case("{type: cross_entropy, weight: %s, label_smoothing: 0.2}" % WEIGHT,
         nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2), sequence, ignored),
    case("mse", nn.MSELoss(), logits, values),
    case("l1", nn.L1Loss(), logits, values),
    case("smooth_l1", nn.SmoothL1Loss(), logits, values),
    case("{type: smooth_l1, beta: 0.3}", nn.SmoothL1Loss(beta=0.3), logits, values),
    case("{type: smooth_l1, beta: 0}", nn.SmoothL1Loss(beta=0), logits, values),
    case("bce_with_logits", nn.BCEWithLogitsLoss(), 4 * logits, yes),
    case("{type: bce_with_logits, pos_weight: 3}", nn.BCEWithLogitsLoss(pos_weight=double(3)), logits, yes),
    case("{type: bce_with_logits, pos_weight: [1, 2, 3, 0.5, 0]}",
         nn.BCEWithLogitsLoss(pos_weight=double(1, 2, 3, 0.5, 0)), logits, yes),
    case("{type: bce_with_logits, pos_weight: 3, reduction: batchmean}",
         lambda y, t: nn.BCEWithLogitsLoss(pos_weight=double(3), reduction="sum")(y, t) / len(y), logits, yes),
    case("kl_div", nn.KLDivLoss(reduction="mean"), logs, shares),
    case("{type: kl_div, reduction: batchmean}", nn.KLDivLoss(reduction="batchmean"), logs, shares),
    case("{type: kl_div, reduction: batchmean, log_target: true}",
         nn.KLDivLoss(reduction="batchmean", log_target=True), logs, other),
    case("l1", nn.L1Loss(), logits, met),
    case("nll", nn.NLLLoss(), logs, classes),
    case("{type: nll, weight: %s, ignore_index: %d}" % (WEIGHT, classes[0]),
         nn.NLLLoss(weight=weight, ignore_index=int(classes[0])), values, classes),
    case("nll", nn.NLLLoss(), sequence, ignored),
    case("multi_margin", nn.MultiMarginLoss(), logits, classes),
    case("{type: multi_margin, p: 2, margin: 0.4, weight: %s}" % WEIGHT, nn.MultiMarginLoss(p=2, margin=0.4, weight=weight), logits, classes),
    case("multilabel_margin", nn.MultiLabelMarginLoss(), logits, lists),
    case("multilabel_margin", lambda y, t: nn.MultiLabelMarginLoss()(y, nn.functional.pad(t, (0, 3), value=-1)), logits, lists[:, :2]),
    case("huber", nn.HuberLoss(), logits, met),
    case("{type: huber, delta: 0.4}", nn.HuberLoss(delta=0.4), logits, values),
    case("{expression: mean(abs(y - t) ^ 1.5)}", lambda y, t: ((y - t).abs() ** 1.5).mean(), logits, met),
    case("{expression: 'norm(y - t) * max(t) + logsumexp(y) - sum(softmax(t) * y)'}",
         lambda y, t: ((y - t).norm(dim=1) * t.amax(1) + y.logsumexp(1) - (t.softmax(1) * y).sum(1)).mean(), logits, values),
    case("quantile", pinball(0.5), logits, met),
    case("{type: quantile, quantile: 0.9}", pinball(0.9), logits, met),
    case("{type: quantile, quantile: 0.1}", pinball(0.1), logits, values),
    case("poisson_nll", nn.PoissonNLLLoss(), logits, counts),
    case("{type: poisson_nll, full: true}", nn.PoissonNLLLoss(full=True), logits, counts),
    case("{type: poisson_nll, log_input: false, eps: 0.5, full: true}",
         nn.PoissonNLLLoss(log_input=False, eps=0.5, full=True), logits.abs(), counts),
    case("focal", focal(0.25, 2), 4 * logits, hot),
    case("{type: focal, alpha: null, gamma: 0.5}", focal(-1, 0.5), logits, hot),
    case("{type: focal, alpha: 0.75, gamma: 0}", focal(0.75, 0), logits, yes),
    case("dice", dice(1e-5), logits, hot),
    case("dice: 1".replace("dice: 1", "{type: dice, smooth: 1}"), dice(1), logits, torch.zeros(ROWS, OUT)),
    case("{type: dice, smooth: 0.1}", dice(0.1), masks, (masks > 0.5).float()),
    case("gaussian_nll", gaussian(nn.GaussianNLLLoss()), spread, values[:, :3]),
    case("{type: gaussian_nll, full: true, eps: 0.3}", gaussian(nn.GaussianNLLLoss(full=True, eps=0.3)), spread, values[:, :3]),
    case("cosine_embedding", parts(nn.CosineEmbeddingLoss(), 2), pairs, signs),
    case("{type: cosine_embedding, margin: 0.2}", parts(nn.CosineEmbeddingLoss(0.2), 2), pairs, signs),
    case("triplet_margin", triplet(nn.TripletMarginLoss()), pairs, torch.zeros(0)),
    case("{type: triplet_margin, margin: 0.1, eps: 0.01, swap: true}",
         triplet(nn.TripletMarginLoss(0.1, eps=0.01, swap=True)), pairs, torch.zeros(0)),
    case("kl_normal", kl_normal, pairs, torch.zeros(0)),
    case("{type: contrastive, temperature: 0.5}", contrastive(0.5, True), pairs, torch.zeros(0)),
    case("{type: contrastive, temperature: 0.5, symmetric: false}", contrastive(0.5, False), pairs, torch.zeros(0)),
    case("contrastive", contrastive(0.07, True), pairs, torch.zeros(0)),
    case("{type: contrastive, temperature: 0.2}", contrastive(0.2, True), pairs[:1], torch.zeros(0)),
    case("ctc", ctc(), steps, labels),
    case("{type: ctc, padding: 0}", ctc(padding=0), many, long),
    case("{type: ctc, blank: 4}", ctc(blank=4), steps, labels % 4 - 100 * (labels < 0)),
    case("{type: ctc, zero_infinity: true}", ctc(zero_infinity=True), steps, impossible),
    case("soft_cross_entropy", nn.CrossEntropyLoss(), 30 * logits, shares),
    case("{type: soft_cross_entropy, label_smoothing: 0.1}", nn.CrossEntropyLoss(label_smoothing=0.1), logits, hot),
    case("{type: soft_cross_entropy, weight: %s, label_smoothing: 0.2}" % WEIGHT, nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2), logits, shares),
    case("soft_cross_entropy", of_positions(nn.CrossEntropyLoss()), sequence, torch.softmax(2 * sequence.flip(0), 2)),
    case("hinge_embedding", nn.HingeEmbeddingLoss(), logits.abs(), 2 * hot - 1),
    case("{type: hinge_embedding, margin: 2.5}", nn.HingeEmbeddingLoss(2.5), logits, 2 * hot - 1),
    case("soft_margin", nn.SoftMarginLoss(), logits, 2 * hot - 1),
    case("margin_ranking", parts(nn.MarginRankingLoss(), 2), pairs, 2 * hot[:, :3] - 1),
    case("{type: margin_ranking, margin: 0.5}", parts(nn.MarginRankingLoss(0.5), 2), pairs, 2 * hot[:, :3] - 1),
    # rows of different lengths
    case_of_lengths("{type: soft_cross_entropy, label_smoothing: 0.1}", nn.CrossEntropyLoss(label_smoothing=0.1), words, word_shares, LENGTHS),
    case_of_lengths("hinge_embedding", nn.HingeEmbeddingLoss(), words, 2 * word_hot - 1, LENGTHS),
    case_of_lengths("{type: margin_ranking, margin: 0.5}", parts(nn.MarginRankingLoss(0.5), 2), words, 2 * word_hot[:, :, :3] - 1, LENGTHS),
    case_of_lengths("cross_entropy", nn.CrossEntropyLoss(), words, word_classes, LENGTHS),
    case_of_lengths("multilabel_margin", nn.MultiLabelMarginLoss(), words, word_lists, LENGTHS),
    case_of_lengths("nll", nn.NLLLoss(), word_logs, word_classes, LENGTHS),
    case_of_lengths("huber", nn.HuberLoss(), words[:, :, :3], word_values, LENGTHS),
    case_of_lengths("bce_with_logits", nn.BCEWithLogitsLoss(), words, word_hot, LENGTHS),
    case_of_lengths("kl_div", nn.KLDivLoss(reduction="mean"), word_logs, word_shares, LENGTHS),
    case_of_lengths("{type: kl_div, log_target: true}", nn.KLDivLoss(reduction="mean", log_target=True), word_logs, word_shares.log(), LENGTHS),
    case_of_lengths("{type: kl_div, reduction: batchmean}", over_rows(nn.KLDivLoss(reduction="sum")), word_logs, word_shares, LENGTHS),
    case_of_lengths("dice", dice(1e-5), words, word_hot, LENGTHS),
    case_of_lengths("{type: dice, smooth: 0.1}", lambda inputs, targets: dice(0.1)(inputs.flatten(1), targets.flatten(1)),
                    words.reshape(4, 6, 3, 2), word_hot.reshape(4, 6, 3, 2), LENGTHS),
    case_of_lengths("gaussian_nll", gaussian(nn.GaussianNLLLoss()), word_spread, word_values, LENGTHS),
    case_of_lengths("{type: gaussian_nll, full: true, eps: 0.3}", gaussian(nn.GaussianNLLLoss(full=True, eps=0.3)), word_spread, word_values, LENGTHS),
    case_of_lengths("{type: cosine_embedding, margin: 0.1}", parts(nn.CosineEmbeddingLoss(0.1), 2), words, word_signs, LENGTHS),
    case_of_lengths("kl_normal", kl_normal, words, torch.zeros(0), LENGTHS),
    case_of_lengths("{type: triplet_margin, margin: 3}", triplet(nn.TripletMarginLoss(3)), words, torch.zeros(0), LENGTHS),
]
path, recorded = os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json"), []
if "--all" not in sys.argv[1:]:
    with open(path) as f:
        recorded = json.load(f)


def given(case):
    """What loss and gradient follow from, without the last digits."""
    return json.dumps([case["config"], case["shape"], case.get("lengths"), case["outputs"], [round(t, 5) for t in case["targets"]]])


known = {given(c): c for c in recorded}
cases = [known.get(given(c), c) for c in cases]
with open(path, "w") as f:
    json.dump(cases, f, separators=(",", ":"))
    f.write("\n")
