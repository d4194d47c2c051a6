"""What scripts of `ddptrain export --format pytorch` need beside PyTorch. Each script has those of these functions and classes
whose names it uses (pytorch.c); two empty lines separate them."""


class RMSNorm(nn.Module):
    def __init__(self, width, eps, elementwise_affine=True):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width)) if elementwise_affine else None

    def forward(self, x):
        x = x.to(dtype)  # under autocast: squares of 16 bits overflow
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return y if self.weight is None else y * self.weight


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """With the mean and the variance of the rows of all processes; nn.SyncBatchNorm is for GPUs alone."""
    def _check_input_dim(self, x):
        pass

    def forward(self, x):
        if not self.training or world == 1:
            return super().forward(x)
        dims, shape, x = [0, *range(2, x.dim())], [1, -1] + [1] * (x.dim() - 2), x.to(dtype)
        total = dist.nn.functional.all_reduce
        count = total(torch.tensor(x.numel() / x.shape[1], dtype=dtype, device=device))
        mean = total(x.sum(dims)) / count
        variance = total((x - mean.reshape(shape)).square().sum(dims)) / count
        if self.track_running_stats:
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        y = (x - mean.reshape(shape)) * (variance + self.eps).rsqrt().reshape(shape)
        return y * self.weight.reshape(shape) + self.bias.reshape(shape) if self.affine else y


class Positions(nn.Embedding):
    """A trained vector for each position."""
    def forward(self, x):
        return x + self.weight[:x.shape[1]]


class PatchEmbedding(nn.Conv2d):
    def __init__(self, channels, width, size, bias=True):
        super().__init__(channels, width, size, size, bias=bias)

    def forward(self, x):
        return super().forward(x).flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.cat([self.weight.expand(len(x), 1, -1), x], 1)


class LayerScale(nn.Module):
    def __init__(self, width, init_values):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), float(init_values)))

    def forward(self, x):
        return x * self.gamma


class LayerScale2d(LayerScale):
    def forward(self, x):
        return x * self.gamma[:, None, None]


def philox(counter, key0, key1):
    """Philox 4x32-10 of four arrays of uint64: random numbers that depend on the counter and the keys alone."""
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = counter
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (q >> np.uint64(32)) ^ b ^ np.uint64(key0), q & low, (p >> np.uint64(32)) ^ d ^ np.uint64(key1), p & low
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d])


class draws:
    """The place of the random numbers of dropout: the seed, the number of the batch in the run, the rows of the global batch."""
    seed = number = 0
    rows = np.zeros(0, np.uint64)

    @staticmethod
    def words(stream, size):
        """(rows, size) of random words, in blocks of four from one counter; size: rounded up to a multiple of four."""
        block, row = np.meshgrid(np.arange((size + 3) // 4, dtype=np.uint64), draws.rows)
        low, number = np.uint64(0xFFFFFFFF), np.uint64(draws.number)
        key = (draws.seed & 0xFFFFFFFF) ^ (draws.seed >> 32) * 0x85EBCA6B & 0xFFFFFFFF
        words = philox([block & low, row & low, np.full_like(row, number & low), np.full_like(row, number >> np.uint64(32)) ^ block >> np.uint64(32)],
                       key, stream)
        return words.transpose(1, 2, 0).reshape(len(draws.rows), -1)

    @staticmethod
    def mask(stream, p, size):
        """(rows, size): 1 / (1 - p) where an element is kept, else 0."""
        words = draws.words(stream, size)[:, :size]
        kept = (words >= int(float(np.float32(p)) * 2 ** 32)) & (p < 1)
        return torch.tensor(kept).to(device, dtype) / (1 - p if p < 1 else 1)

    @staticmethod
    def uniform(stream, size):
        """(rows, size) of numbers from 0 to 1."""
        return torch.tensor((draws.words(stream, size)[:, :size] >> np.uint64(8)).astype(np.float64) / 2 ** 24).to(device, dtype)

    @staticmethod
    def normal(stream, size):
        """(rows, size) of standard normal numbers, two from two words (Box and Muller)."""
        words = draws.words(stream, size)
        u = (words[:, ::2].astype(np.float32) * np.float32(2.0 ** -32) + np.float32(2.0 ** -33)).astype(np.float64)
        angle = ((words[:, 1::2] >> np.uint64(30)) + (words[:, 1::2] & np.uint64(0x3FFFFFFF)) / 2.0 ** 30 - 0.5) * np.pi / 2
        pair = np.sqrt(-2 * np.log(u)) * np.stack([np.cos(angle), np.sin(angle)])
        return torch.tensor(pair.transpose(1, 2, 0).reshape(len(words), -1)[:, :size]).to(device, dtype)


def of_elements(numbers, x, channels_last):
    """(rows, elements) of numbers in the shape of x, whose elements the run has in this order."""
    return numbers.reshape(len(x), *x.shape[2:], x.shape[1]).movedim(-1, 1) if channels_last else numbers.reshape(x.shape)


class Dropout(nn.Module):
    """nn.Dropout with the masks of the run, which are functions of seed, layer, batch, row and element."""
    def __init__(self, p, stream, channels_last=False):
        super().__init__()
        self.p, self.stream, self.channels_last = p, stream, channels_last

    def forward(self, x):
        return x * of_elements(draws.mask(self.stream, self.p, x[0].numel()), x, self.channels_last) if self.training and self.p else x


class ChannelDropout(Dropout):
    def forward(self, x):
        return x * draws.mask(self.stream, self.p, x.shape[1]).reshape(*x.shape[:2], *[1] * (x.dim() - 2)) if self.training and self.p else x


class AlphaDropout(Dropout):
    limit = 1.7580993408473766  # selu of minus infinity is minus this

    def forward(self, x):
        factor = ((1 - self.p) / (self.limit ** 2 * self.p + 1)) ** 0.5
        return factor * (super().forward(x + self.limit) - self.limit) if self.training and self.p else x


class FeatureAlphaDropout(AlphaDropout, ChannelDropout):
    pass


class RReLU(nn.Module):
    def __init__(self, lower, upper, stream, channels_last=False):
        super().__init__()
        self.lower, self.upper, self.stream, self.channels_last = lower, upper, stream, channels_last

    def forward(self, x):
        slope = (self.lower + self.upper) / 2
        if self.training:
            slope = self.lower + (self.upper - self.lower) * of_elements(draws.uniform(self.stream, x[0].numel()), x, self.channels_last)
        return torch.where(x > 0, x, slope * x)


class SampleNormal(nn.Module):
    def __init__(self, stream, channels_last=False):
        super().__init__()
        self.stream, self.channels_last = stream, channels_last

    def forward(self, mean, log_variance):
        if not self.training:
            return mean
        noise = of_elements(draws.normal(self.stream, mean[0].numel()), mean, self.channels_last)
        return mean + torch.exp(0.5 * log_variance) * noise


class DropPath(Dropout):
    def __init__(self, p, mode="row", stream=0):
        super().__init__(p, stream)
        self.mode = mode

    def forward(self, x):
        if not self.training or not self.p:
            return x
        mask = draws.mask(self.stream, self.p, 1)
        return x * (mask[:1] if self.mode == "batch" else mask).reshape(-1, *[1] * (x.dim() - 1))


def real_positions(count, lengths):
    """(rows, count): whether a position is before the end of its row."""
    return torch.arange(count, device=device) < lengths[:, None]


def token_lengths(x, padding):
    """The lengths of rows of tokens: up to the last one that is not padding."""
    return (torch.arange(1, x.shape[1] + 1, device=device) * (x != padding)).max(1).values.clamp(min=1)


def attend(q, k, v, causal, lengths, dropout, stream, training, bias=None):
    """Scaled dot product attention of (rows, heads, positions, size); positions behind `lengths` are not attended to."""
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores + torch.full(scores.shape[2:], float("-inf"), device=device).triu(1)
    if lengths is not None:
        scores = scores.masked_fill(~real_positions(k.shape[2], lengths)[:, None, None], float("-inf"))
    weights = scores.softmax(-1)
    if training and dropout:
        weights = weights * draws.mask(stream, dropout, weights[0].numel()).reshape(weights.shape)
    return (weights @ v).transpose(1, 2).flatten(2)


class Attention(nn.MultiheadAttention):
    """The parameters of nn.MultiheadAttention, and its outputs for q = k = v = x (rows, positions, width)."""
    def __init__(self, width, heads, causal=False, bias=True, dropout=0, stream=0):
        super().__init__(width, heads, bias=bias)
        self.causal, self.p, self.stream = causal, dropout, stream

    def forward(self, x, lengths=None, memory=None, mask=None):
        width, bias = self.embed_dim, self.in_proj_bias
        q = F.linear(x, self.in_proj_weight[:width], bias if bias is None else bias[:width])
        kv = F.linear(x if memory is None else memory, self.in_proj_weight[width:], bias if bias is None else bias[width:])
        q, k, v = (t.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for t in (q, *kv.chunk(2, 2)))
        return self.out_proj(attend(q, k, v, self.causal, lengths, self.p, self.stream, self.training, mask))


class CrossAttention(Attention):
    def __init__(self, width, heads, bias=True, dropout=0, mask="ignore", stream=0):
        super().__init__(width, heads, False, bias, dropout, stream)
        self.mask = mask

    def forward(self, x, memory, *others):
        lengths, mask = (next((t for t in others if (t.dim() > 1) == is_mask), None) for is_mask in (False, True))
        if mask is not None:  # (rows, keys) or (rows, queries, keys)
            mask = mask.reshape(len(x), 1, -1, memory.shape[1])
            if self.mask != "add":
                mask = torch.zeros_like(mask).masked_fill((mask != 0) == (self.mask == "ignore"), float("-inf"))
        return super().forward(x, lengths, memory, mask)


class DotProductAttention(nn.Module):
    """Of q, k and v that stand side by side in x (rows, positions, (heads + 2 kv_heads) * size)."""
    def __init__(self, heads, kv_heads=None, causal=False, dropout=0, stream=0):
        super().__init__()
        self.heads, self.kv_heads, self.causal, self.p, self.stream = heads, kv_heads or heads, causal, dropout, stream

    def forward(self, x, lengths=None):
        size = x.shape[2] // (self.heads + 2 * self.kv_heads)
        q, k, v = (t.unflatten(2, (-1, size)).transpose(1, 2) for t in x.split([n * size for n in (self.heads, self.kv_heads, self.kv_heads)], 2))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        return attend(q, k, v, self.causal, lengths, self.p, self.stream, self.training)


class RotaryEmbedding(nn.Module):
    """Rotates pairs of the features of the first heads by angles that grow with the position."""
    def __init__(self, head_size, heads=None, base=10000, interleaved=False):
        super().__init__()
        self.head_size, self.heads, self.base, self.interleaved = head_size, heads, base, interleaved

    def forward(self, x):
        width, size = x.shape[2], self.head_size
        count = self.heads * size if self.heads else width
        rotated, rest = x.split([count, width - count], 2)
        t = rotated.unflatten(2, (-1, size))
        angles = torch.outer(torch.arange(x.shape[1]).double(), self.base ** (-torch.arange(0, size, 2).double() / size)).to(device)
        if self.interleaved:
            angles, other = angles.repeat_interleave(2, 1), torch.stack([-t[..., 1::2], t[..., ::2]], -1).flatten(3)
        else:
            angles, other = torch.cat([angles, angles], 1), torch.cat([-t[..., size // 2:], t[..., :size // 2]], -1)
        y = t * angles.cos().to(x.dtype)[:, None] + other * angles.sin().to(x.dtype)[:, None]
        return torch.cat([y.flatten(2), rest], 2)


def recurrent(kind):
    """A module of PyTorch that returns the outputs of all steps or, with output="last", the state after the last one; with
    last_state also those of all layers, in one row. initial_state: "learned", or forward takes them."""
    def padded(module, x, lengths, states):
        if lengths is None:
            return module(x, states)
        y, states = module(nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False), states)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0], states

    def one_or_two(states):
        return tuple(states) if kind is nn.LSTM else states[0]

    class Recurrent(kind):
        def __init__(self, width, size, num_layers=1, output="all", dropout=0, stream=0, initial_state=None, last_state=None, **options):
            super().__init__(width, size, num_layers, batch_first=True, **options)
            self.output, self.p, self.stream, self.layers, self.directions = output, dropout, stream, [], 1 + self.bidirectional
            self.states = ["h0", "c0"][:2 if kind is nn.LSTM else 1] if initial_state else []
            self.last = 0 if last_state is None else 1 if isinstance(last_state, str) else len(last_state)
            self.is_learned = initial_state == "learned"
            with torch.random.fork_rng([]):
                for number in range(num_layers if dropout else 0):  # single layers with the same parameters, for dropout between them
                    layer = kind(width if number == 0 else size * self.directions, size, batch_first=True, **options)
                    for name, _ in list(layer.named_parameters()):
                        setattr(layer, name, getattr(self, name.replace("_l0", f"_l{number}")))
                    self.layers.append(layer)
            for name in self.states if self.is_learned else []:
                setattr(self, name, nn.Parameter(torch.zeros(num_layers * self.directions, 1, size)))

        def dropped(self, x, lengths, states):
            ends = []
            for number, layer in enumerate(self.layers):
                if number > 0:
                    x = x * torch.stack([draws.mask(self.stream + 16384 * (1 + (number - 1) * x.shape[1] + step), self.p, x.shape[2])
                                         for step in range(x.shape[1])], 1)
                own = [s[number * self.directions:(number + 1) * self.directions].contiguous() for s in states]
                x, end = padded(layer, x, lengths, one_or_two(own) if own else None)
                ends.append(end if isinstance(end, tuple) else (end,))
            return x, one_or_two([torch.cat(part) for part in zip(*ends)])

        def forward(self, x, *more):
            count = 0 if self.is_learned else len(self.states)
            lengths = more[count] if len(more) > count else None
            states = [getattr(self, name).expand(-1, len(x), -1).contiguous() for name in self.states] if self.is_learned else \
                [s.reshape(len(x), -1, self.hidden_size).transpose(0, 1).contiguous() for s in more[:count]]
            if self.training and len(self.layers) > 1:
                y, ends = self.dropped(x, lengths, states)
            else:
                y, ends = padded(super().forward, x, lengths, one_or_two(states) if states else None)
            ends = ends if isinstance(ends, tuple) else (ends,)
            y = y if self.output == "all" else torch.cat(tuple(ends[0][-self.directions:]), -1)
            return torch.cat([y.flatten(1), *(s.transpose(0, 1).flatten(1) for s in ends[:self.last])], 1) if self.last else y
    return Recurrent


LSTM = recurrent(nn.LSTM)


GRU = recurrent(nn.GRU)


RNN = recurrent(nn.RNN)


def mean_of_real(x, lengths, keepdim=False):
    """The mean over the positions (dimension 1) before the end of each row."""
    real = real_positions(x.shape[1], lengths).reshape(*x.shape[:2], *[1] * (x.dim() - 2))
    return (x * real).sum(1, keepdim) / lengths.reshape(-1, *[1] * (x.dim() - (1 if keepdim else 2)))


def max_of_real(x, lengths, keepdim=False):
    real = real_positions(x.shape[1], lengths).reshape(*x.shape[:2], *[1] * (x.dim() - 2))
    return x.masked_fill(~real, float("-inf")).max(1, keepdim)[0]


def pad(x, padding, mode="constant", value=0):
    """F.pad; one number is that of all sides, and without numbers for them other dimensions than the last ones have no padding."""
    count = 2 * max(1, min(x.dim() - 2, 3))
    sides = [padding] * count if isinstance(padding, int) else [*padding, *[0] * (count - len(padding))]
    return F.pad(x, sides, mode, value)


def max_unpool(x, before, kernel_size, stride=None, padding=0, ceil_mode=False):
    """With the positions of the max pool of [before]."""
    pool, unpool = {3: (F.max_pool1d, F.max_unpool1d), 4: (F.max_pool2d, F.max_unpool2d), 5: (F.max_pool3d, F.max_unpool3d)}[x.dim()]
    indices = pool(before, kernel_size, stride, padding, ceil_mode=ceil_mode, return_indices=True)[1]
    return unpool(x, indices, kernel_size, stride, padding, before.shape[2:])


def part_of(x, dim, start, end):
    return x.narrow(dim, start, end - start)


def put(model, name, module):
    """Registers the module under a dotted name."""
    *levels, last = name.split(".")
    for level in levels:
        if level not in model._modules:
            model.add_module(level, nn.Module())
        model = model._modules[level]
    model.add_module(last, module)


def binary_cross_entropy(y, t, pos_weight=None, reduction="mean"):
    if pos_weight is not None:
        pos_weight = torch.tensor(pos_weight, dtype=y.dtype, device=device)
        pos_weight = pos_weight[:, None, None] if pos_weight.dim() and y.dim() == 4 else pos_weight
    if reduction == "batchmean":
        return F.binary_cross_entropy_with_logits(y, t, pos_weight=pos_weight, reduction="sum") / len(y)
    return F.binary_cross_entropy_with_logits(y, t, pos_weight=pos_weight)


def soft_cross_entropy(y, t, weight=None, label_smoothing=0.0):
    weight = None if weight is None else torch.tensor(weight, dtype=y.dtype, device=device)
    return F.cross_entropy(y.flatten(0, -2), t.flatten(0, -2), weight=weight, label_smoothing=label_smoothing)


def multi_margin_loss(y, t, weight=None, p=1, margin=1.0):
    """Of outputs (rows, classes, ...)."""
    return F.multi_margin_loss(y.movedim(1, -1).flatten(0, -2), t.flatten(), p, margin, weight)


def multilabel_margin_loss(y, t):
    """Of lists of classes, each of which ends before its first negative value."""
    t = t.flatten(1).long()
    t = torch.where((t < 0).cumsum(1) > 0, -1, t)
    return F.multilabel_margin_loss(y, F.pad(t, (0, y.shape[1] - t.shape[1]), value=-1))


def quantile_loss(y, t, quantile):
    d = y - t
    return (torch.where(d > 0, 1 - quantile, -quantile) * d).mean()


class ex:
    """The functions of expressions: of features, the last dimension, which reductions make one number."""
    number = staticmethod(lambda x: torch.as_tensor(x, device=device) * 1.0)
    both = staticmethod(lambda a, b: ex.number((ex.number(a) != 0) & (ex.number(b) != 0)))
    either = staticmethod(lambda a, b: ex.number((ex.number(a) != 0) | (ex.number(b) != 0)))
    neither = staticmethod(lambda a: ex.number(ex.number(a) == 0))
    where = staticmethod(lambda c, a, b: torch.where(ex.number(c) != 0, ex.number(a), ex.number(b)))
    clamp = staticmethod(lambda x, low, high: ex.where(x < low, low, ex.where(x > high, high, x)))
    index = staticmethod(lambda *x: torch.arange(max(one.shape[-1] for one in x), dtype=x[0].dtype, device=device))
    abs, sign, floor, round = (staticmethod(lambda x, f=f: f(ex.number(x))) for f in (torch.abs, torch.sign, torch.floor, torch.round))
    sqrt, exp, expm1, log = (staticmethod(lambda x, f=f: f(ex.number(x))) for f in (torch.sqrt, torch.exp, torch.expm1, torch.log))
    log1p, log10, sin, cos = (staticmethod(lambda x, f=f: f(ex.number(x))) for f in (torch.log1p, torch.log10, torch.sin, torch.cos))
    tanh, erf, sigmoid, relu = (staticmethod(lambda x, f=f: f(ex.number(x))) for f in (torch.tanh, torch.erf, torch.sigmoid, torch.relu))
    softplus, silu, gelu = (staticmethod(lambda x, f=f: f(ex.number(x))) for f in (F.softplus, F.silu, F.gelu))
    pow = staticmethod(lambda a, b: ex.number(a) ** b)
    detach = staticmethod(lambda x: ex.number(x).detach())
    sum, mean, logsumexp, norm = (staticmethod(lambda x, f=f: f(ex.number(x), dim=-1, keepdim=True))
                                  for f in (torch.sum, torch.mean, torch.logsumexp, torch.linalg.vector_norm))
    softmax = staticmethod(lambda x: ex.number(x).softmax(-1))
    max = staticmethod(lambda a, *b: torch.maximum(ex.number(a), ex.number(*b)) if b else ex.number(a).amax(-1, keepdim=True))
    min = staticmethod(lambda a, *b: torch.minimum(ex.number(a), ex.number(*b)) if b else ex.number(a).amin(-1, keepdim=True))


def expression_loss(formula, y, t):
    y, t = y.flatten(1), t.reshape(len(t), -1).to(y.dtype)
    return formula(y, t, torch.ones(len(y), 1, dtype=y.dtype, device=device)).mean()


def focal_loss(y, t, alpha, gamma):
    other = torch.sigmoid(y) * (1 - t) + torch.sigmoid(-y) * t
    weight = 1 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
    return (weight * F.binary_cross_entropy_with_logits(y, t, reduction="none") * other ** gamma).mean()


def dice_loss(y, t, smooth):
    p = torch.sigmoid(y).flatten(2 if y.dim() > 2 else 1)
    t = t.reshape(p.shape)
    return (1 - (2 * (p * t).sum(-1) + smooth) / (p.sum(-1) + t.sum(-1) + smooth)).mean()


def gaussian_nll(y, t, full=False, eps=1e-6):
    mean, variance = y.chunk(2, 1)
    return F.gaussian_nll_loss(mean, t, variance, full=full, eps=eps)


def kl_normal(y):
    """The divergence of normal distributions, of means and logarithms of variances, from the standard one."""
    mean, log_variance = y.flatten(1).chunk(2, 1)
    return 0.5 * (log_variance.exp() + mean ** 2 - 1 - log_variance).sum(1).mean()


def contrastive_loss(a, b, temperature, symmetric):
    logits = F.normalize(a) @ F.normalize(b).T / temperature
    labels = torch.arange(len(logits), device=device)
    one = F.cross_entropy(logits, labels)
    return (one + F.cross_entropy(logits.T, labels)) / 2 if symmetric else one


def ctc_loss(y, t, lengths, blank=0, zero_infinity=False, padding=-100):
    """Of log-probabilities (rows, steps, classes); the targets of a row end before the first padding."""
    counts = ((t == padding).cumsum(1) == 0).sum(1)
    lengths = torch.full_like(counts, y.shape[1]) if lengths is None else lengths
    return F.ctc_loss(y.transpose(0, 1), t.clamp(min=0), lengths, counts, blank, zero_infinity=zero_infinity)


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""
    def __init__(self, groups, lr, betas, weight_decay, maximize=False):
        super().__init__(groups, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            a, b = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m, g = self.state[p].setdefault("exp_avg", torch.zeros_like(p)), -p.grad if group["maximize"] else p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * (a * m + (1 - a) * g).sign())
                m.mul_(b).add_(g, alpha=1 - b)


class ASGD(torch.optim.ASGD):
    """With the rate of a schedule in the same update; PyTorch takes that of the update before."""
    def step(self, *arguments):
        for group in self.param_groups:
            for state in (self.state[p] for p in group["params"] if self.state[p]):
                state["eta"].fill_(group["lr"] / (1 + group["lambd"] * group["lr"] * state["step"].item()) ** group["alpha"])
        return super().step(*arguments)


def cosine_restarts(base, t, period, factor, eta_min):
    while t >= period:
        t, period = t - period, period * factor
    return eta_min + (base - eta_min) * (1 + math.cos(math.pi * t / period)) / 2


def one_cycle(t, n, low, high, end, pct_start, anneal, three_phase):
    def between(a, b, share):
        return a + (b - a) * share if anneal == "linear" else b + (a - b) / 2 * (math.cos(math.pi * share) + 1)
    t, rise = min(t, n - 1), pct_start * n - 1
    fall = 2 * pct_start * n - 2 if three_phase else rise
    if t <= rise:
        return between(low, high, t / rise if rise > 0 else 1)
    if three_phase and t <= fall:
        return between(high, low, (t - rise) / (fall - rise))
    return between(low if three_phase else high, end, (t - fall) / (n - 1 - fall)) if n - 1 > fall else end


def cyclic(t, up, down, mode, gamma):
    size = up + (down or up)
    cycle, ratio = math.floor(1 + t / size), up / size
    x = 1 + t / size - cycle
    share = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
    return share / 2 ** (cycle - 1) if mode == "triangular2" else share * gamma ** t if mode == "exp_range" else share


def piecewise(t, table, interpolation):
    """A factor from a table of points; before the first and after the last one it is constant."""
    if interpolation == "linear":
        return np.interp(t, list(table), list(table.values()))
    return table[max([at for at in table if at <= t], default=min(table))]


def columns(arrays):
    """One array of rows: a single one as it is, several side by side."""
    return None if not arrays else arrays[0] if len(arrays) == 1 else np.concatenate([a.reshape(len(a), -1) for a in arrays], 1)


def read_hdf5(path, inputs, targets):
    with h5py.File(path) as file:
        return columns([file[name][:] for name in inputs]), columns([file[name][:] for name in targets])


def read_npz(path, inputs, targets):
    file = np.load(path)
    return columns([file[name] for name in inputs]), columns([file[name] for name in targets])


def read_table(paths, na_values=None, **options):
    """A CSV file, or several. Blanks around names, texts and marks of missing values are no part of them."""
    paths = [paths] if isinstance(paths, str) else paths
    marks = na_values or ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]

    def bare(text):  # a blank at its start was in quotes
        return (text.lstrip(" \t") if text.startswith("\t") else text).rstrip(" \t")

    def read(marks, options):
        return pandas.concat([pandas.read_csv(path, skipinitialspace=True, na_values=marks, keep_default_na=False, **options) for path in paths], ignore_index=True)

    table = read(marks, options)
    has_digits = any(c.isdigit() for c in "".join(na_values or []))  # "999 " is a number for pandas
    texts = read(marks, {**options, "dtype": str}) if has_digits else table
    padded = {v for name in texts.select_dtypes(exclude=["number", "bool"]) for v in texts[name].unique() if isinstance(v, str) and bare(v) in marks}
    table = read([*marks, *padded], options) if padded else table
    table.columns = table.columns.map(lambda name: bare(str(name)))
    for name in table.select_dtypes(exclude=["number", "bool"]).columns:
        table[name] = table[name].map(lambda value: bare(value) if isinstance(value, str) else value)
    return table


def read_database(path, query=None, table=None):
    """All values as texts; without a query or a table the only one of an SQLite database."""
    with sqlite3.connect(path) as database:
        names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        table = table or query or database.execute(names).fetchone()[0]
        rows = database.execute(query or 'SELECT * FROM "{}"'.format(table.replace('"', '""')))
        return pandas.DataFrame([[None if value is None else str(value) for value in row] for row in rows], columns=[c[0] for c in rows.description])


def read_sqlite(path, inputs, targets, drop=False, texts=False, **options):
    table = read_database(path, **options)
    table = table.dropna(subset=targets) if drop else table
    return table[inputs].to_numpy("f8"), columns([table[name].to_numpy() if texts else pandas.to_numeric(table[name]).to_numpy() for name in targets])


def read_csv(paths, inputs, targets, filter=None, drop=False, **options):
    """filter: which rows are used; drop: those without a target are left out."""
    table = read_table(paths, **options)
    table = table.query(filter) if filter else table
    table = table.dropna(subset=targets) if drop else table
    return table[inputs].to_numpy("f8"), columns([table[name].to_numpy() for name in targets])


def read_idx(path, labels):
    """Images and labels in the format of MNIST."""
    def read(name):
        with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
            data = file.read()
        shape = np.frombuffer(data, ">i4", data[3], 4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)
    images = read(path)
    return images[:, None] if images.ndim == 3 else images, labels and read(labels)


def prepared(values, missing, fill, indicator):
    values = values.reshape(len(values), -1)
    values = values if fill is None else np.where(missing[:, None], fill, values)
    return np.concatenate([values, missing[:, None]], 1) if indicator else values


def computed(table, names, formula):
    """A column that is a formula of others, in double; missing where one of them is."""
    words = {"true": 1, "yes": 1, "false": 0, "no": 0}
    inputs = [pandas.to_numeric(table[name].map(lambda v: words.get(v.lower(), v) if isinstance(v, str) else v)).to_numpy("f8") for name in names]
    values = formula(*[torch.tensor(column, device=device) for column in inputs]).cpu().numpy()
    return np.where(np.isnan(inputs).any(0), np.nan, values)


def numeric(column, fill=None, indicator=False):
    values = pandas.to_numeric(column).to_numpy("f8")
    return prepared(values, np.isnan(values), fill, indicator)


def boolean(column, fill=None, indicator=False):
    values = column.str.lower().map({"true": 1, "yes": 1, "1": 1, "false": 0, "no": 0, "0": 0}).to_numpy("f8")
    return prepared(values, np.isnan(values), fill, indicator)


def category(column, categories, encoding, fill=None, indicator=False):
    """The index of the category; fill: that of missing values, -1: none."""
    values = column if isinstance(categories[0], str) else pandas.to_numeric(column)
    index = pandas.Index(categories).get_indexer(values)
    missing = column.isna().to_numpy()
    index = index if fill is None else np.where(missing, int(fill), index)
    features = {"one_hot": index[:, None] == np.arange(len(categories)), "ordinal": index, "embedding": index + 1}[encoding]
    return prepared(features.astype("f8"), missing, None, indicator)


def date(column, parts, format=None, fill=None, indicator=False):
    times, names = pandas.to_datetime(column, format=format), {"weekday": "day_of_week", "dayofyear": "day_of_year"}
    values = [(times - pandas.Timestamp(0)) / pandas.Timedelta(days=1) if part == "epoch" else getattr(times.dt, names.get(part, part))
              for part in parts]
    return prepared(np.stack([v.to_numpy("f8") for v in values], 1), times.isna().to_numpy(), fill, indicator)


def image_classes(path):
    """The folders in the folder, as torchvision's ImageFolder."""
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name[0] != ".")


def images_below(path):
    """The images in the folder and below it, in torchvision's order."""
    return [os.path.join(folder, name) for folder, _, names in sorted(os.walk(path, followlinks=True)) for name in sorted(names)
            if name.lower().endswith((".jpg", ".jpeg", ".png")) and name[0] != "." and "/." not in folder[len(path):]]


def image_folder(path, classes):
    """The images in the folders of the classes, and the number of the class of each."""
    files = [images_below(os.path.join(path, name)) for name in classes]
    return np.concatenate(files), np.repeat(np.arange(len(classes)), [len(own) for own in files])


def image_table(path, labels, column, targets, texts=False):
    """The images that the rows of a CSV file name, with or without their extension, and their targets."""
    table = pandas.read_csv(labels, dtype=str, keep_default_na=False)
    files = [os.path.join(path, name) for name in table[column or table.columns[0]]]
    files = [next(file + end for end in ("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG") if os.path.isfile(file + end)) for file in files]
    return np.array(files), columns([table[name].to_numpy() if texts else pandas.to_numeric(table[name]).to_numpy() for name in targets])


def image_masks(path, masks):
    """The images in the folder and below it, and their masks."""
    files = images_below(path)
    return np.array(files), np.array([os.path.join(masks, os.path.splitext(os.path.relpath(file, path))[0] + ".png") for file in files])


class Images:
    """Bytes (rows, channels, height, width) of files: resized (a number: the new length of the shorter side), then the middle."""
    def __init__(self, files, size, resize, mode="RGB", upright=False):
        self.files, self.size, self.resize, self.mode, self.upright = files, size, resize, mode, upright
        self.pool = concurrent.futures.ThreadPoolExecutor()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, rows):
        return np.stack(list(self.pool.map(self.read, [self.files[i] for i in rows])))

    def read(self, file):
        image = PIL.Image.open(file)
        if self.upright and image.format == "JPEG":
            image = PIL.ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # grey of 16 bits: the high byte
            image = PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = np.asarray(self.middle(image.convert("RGB").convert(self.mode), PIL.Image.BILINEAR))
        return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)

    def middle(self, image, resample):
        width, height = self.resize[::-1] if isinstance(self.resize, tuple) else [
            int(self.resize * side / min(image.size)) for side in image.size]
        image = image.resize((width, image.height), resample).resize((width, height), resample)  # in this order in every version
        top, left = round((height - self.size[0]) / 2), round((width - self.size[1]) / 2)
        return image.crop((left, top, left + self.size[1], top + self.size[0]))


def byte_counts(x, rows):
    """How often each byte is in these rows of images."""
    return sum(np.bincount(x[part].ravel(), minlength=256) for part in np.array_split(rows, len(rows) // 256 + 1))


class Masks(Images):
    """The classes of the pixels: grey values, or indexes into a palette."""
    def read(self, file):
        return np.asarray(self.middle(PIL.Image.open(file), PIL.Image.NEAREST))


def random_words(positions, epoch, seed, stream):
    """(4, rows): random numbers below 2 ** 32, functions of the position in the training rows, the epoch, the seed and the stream."""
    low, row = np.uint64(0xFFFFFFFF), positions.astype(np.uint64)
    return philox([row & low, row >> np.uint64(32), np.full_like(row, epoch & 0xFFFFFFFF), np.full_like(row, epoch >> 32)],
                  seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF ^ stream)


class Drawn:
    """Pairs or triplets (members 2, 3) of the rows of parts, drawn by their classes y: numbers of samples, which parts has instead of rows,
    become rows. Those of the first part, the training rows, depend on the epoch."""

    def __init__(self, members, y, parts, seed, different):
        values, y = np.unique(np.asarray(y).reshape(-1), return_inverse=True)
        self.members, self.seed, self.epoch, self.ends, self.classes = members, seed, 0, np.cumsum([len(part) for part in parts]), []
        self.parts = np.split(np.arange(self.ends[-1]), self.ends[:-1])
        self.targets = torch.cat([torch.tensor([1, different]).repeat(len(part) // 2 + 1)[:len(part)] for part in parts])
        for part in parts:
            used = [part[y[part] == number] for number, value in enumerate(values) if isinstance(value, str) or value >= 0]
            used = sorted((rows for rows in used if len(rows)), key=lambda rows: len(rows) == 1)  # first the classes with several rows
            self.classes.append((np.concatenate(used), np.array([len(rows) for rows in used]), sum(len(rows) > 1 for rows in used)) if used else None)

    def __call__(self, samples):
        """(samples, members)"""
        samples = np.asarray(samples)
        part = int(np.searchsorted(self.ends, samples[0], "right"))
        (rows, counts, shared), position = self.classes[part], (samples - self.parts[part][0]).astype(np.uint64)
        starts, low, epoch = np.cumsum(counts) - counts, np.uint64(0xFFFFFFFF), 0 if part else self.epoch
        words = [philox([position & low, position >> np.uint64(32), np.full_like(position, epoch), np.full_like(position, i)], self.seed, 0x64726177) for i in (0, 1)]

        def below(word, count, but=None):
            number = (word * np.asarray(count - (but is not None), np.uint64) >> np.uint64(32)).astype(int)
            return number if but is None else number + (number >= but)
        alike = (position % np.uint64(2) == 0) | (self.members == 3)
        one = below(words[0][0], np.where(alike, shared, len(counts)))
        first = below(words[0][1], counts[one])
        positive = rows[starts[one] + np.where(alike, below(words[0][2], counts[one], first), 0)]
        other = below(words[1][0], len(counts), one)
        negative = rows[starts[other] + below(words[1][1], counts[other])]
        return torch.tensor(np.stack([rows[starts[one] + first], *([positive, negative] if self.members == 3 else [np.where(alike, positive, negative)])], 1))


def between(word, low, high):
    return low + float(word) / 2 ** 32 * (high - low)


def below(word, count):
    return int(word) * count >> 32


def random_crop(images, draw, padding, fill=0):
    height, width = images.shape[2:]
    down, across = (draw(0x6175676D)[:2] * np.uint64(2 * padding + 1) >> np.uint64(32)).astype(int)
    images = F.pad(images, [padding] * 4, value=fill)
    return torch.stack([image[:, i:i + height, j:j + width] for image, i, j in zip(images, down, across)])


def random_flip(images, draw, p, dim):
    chosen = torch.tensor(draw(0x6175676D)[5 - dim] < p * 2 ** 32)
    return torch.where(chosen[:, None, None, None], images.flip(dim), images)


def random_windows(draw, count, height, width, scale, ratio):
    """Top, left, height, width: of ten windows with a random share of the area and ratio of the sides the first that fits, else the middle."""
    words = np.stack([draw(0x77696E00 + i) for i in range(10)])
    for row in range(count):
        for area, aspect, down, across in words[:, :, row]:
            area = height * width * between(area, *scale)
            aspect = math.exp(between(aspect, math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 1 <= w <= width and 1 <= h <= height:
                yield below(down, height - h + 1), below(across, width - w + 1), h, w
                break
        else:
            h = max(round(width / ratio[0]), 1) if width / height < ratio[0] else height
            w = max(round(height * ratio[1]), 1) if width / height > ratio[1] else width
            yield (height - h) // 2, (width - w) // 2, h, w


def random_resized_crop(images, draw, scale, ratio, nearest=False):
    height, width = images.shape[2:]
    parts = [image[:, i:i + h, j:j + w] for image, (i, j, h, w) in zip(images, random_windows(draw, len(images), height, width, scale, ratio))]
    if not nearest:
        return torch.cat([F.interpolate(part[None], (height, width), mode="bilinear", align_corners=False) for part in parts])
    down, across = 2 * torch.arange(height) + 1, 2 * torch.arange(width) + 1
    return torch.stack([part[:, down * part.shape[1] // (2 * height)][:, :, across * part.shape[2] // (2 * width)] for part in parts])


def random_rotation(images, draw, degrees, bilinear=False, fill=0):
    """Pixels of the result are looked up in the image, at the place that the inverse rotation gives; bilinear: fill must be 0."""
    height, width = images.shape[2:]
    y, x = torch.meshgrid(torch.arange(height).double() - (height - 1) / 2, torch.arange(width).double() - (width - 1) / 2, indexing="ij")
    result = []
    for image, word in zip(images.flatten(2), draw(0x726F7461)[0]):
        angle = math.radians(between(word, *degrees))
        down = math.sin(angle) * x + math.cos(angle) * y + (height - 1) / 2
        across = math.cos(angle) * x - math.sin(angle) * y + (width - 1) / 2
        rotated, weights = 0, 0
        for i, j in [(0, 0), (0, 1), (1, 0), (1, 1)] if bilinear else [(0, 0)]:
            v, u = (down.floor() + i, across.floor() + j) if bilinear else (down.round(), across.round())
            inside = (v >= 0) & (v < height) & (u >= 0) & (u < width)
            pixel = image[:, (v * width + u).long().clamp(0, height * width - 1)]
            if not bilinear:
                rotated = pixel.masked_fill(~inside, fill)
                continue
            weight = ((1 - (down - v).abs()) * (1 - (across - u).abs()) * inside).to(dtype)
            rotated, weights = rotated + weight * pixel, weights + weight
        result.append(rotated * weights if bilinear else rotated)
    return torch.stack(result)


def grey(image):
    return image if len(image) == 1 else 0.2989 * image[:1] + 0.587 * image[1:2] + 0.114 * image[2:]


def shifted_hue(image, shift):
    """The colours as hue, saturation and value, and back."""
    (r, g, _), (high, _), (low, _) = image, image.max(0), image.min(0)
    rc, gc, bc = (high - image) / (high - low).masked_fill(high == low, 1)
    hue = torch.where(high == r, bc - gc, torch.where(high == g, 2 + rc - bc, 4 + gc - rc)) / 6 + 1
    hue = hue - (hue >= 1).to(dtype) + shift
    hue = 6 * (hue + (hue < 0).to(dtype) - (hue >= 1).to(dtype))
    sector, saturation = hue.long(), (high - low) / high.masked_fill(high == 0, 1)
    p, q, t = ((high * (1 - saturation * f)).clamp(0, 1) for f in (1, hue - sector, 1 - (hue - sector)))
    colors = torch.stack([torch.stack(c) for c in ((high, t, p), (q, high, p), (p, high, t), (p, q, high), (t, p, high), (high, p, q))])
    return colors.gather(0, (sector % 6).expand(1, 3, -1, -1))[0]


def color_jitter(images, draw, brightness, contrast, saturation, hue):
    """Ranges of random factors, None: no change; in a random order. Values are from 0 to 1."""
    factors, words, result = draw(0x636F6C00), draw(0x636F6C01), []
    for row, image in enumerate(images.clamp(0, 1)):
        order = ["brightness", "contrast", "saturation", "hue"]
        ranges = dict(zip(order, (brightness, contrast, saturation, hue)))
        factor = {name: between(word, *ranges[name]) for name, word in zip(order, factors[:, row]) if ranges[name]}
        for i in range(3):
            j = i + below(words[i, row], 4 - i)
            order[i], order[j] = order[j], order[i]
        for name in order:
            if name not in factor or len(image) == 1 and name in ("saturation", "hue"):
                continue
            if name == "hue":
                image = shifted_hue(image, factor[name])
            else:
                other = {"brightness": 0, "contrast": grey(image).mean(), "saturation": grey(image)}[name]
                image = (factor[name] * image + (1 - factor[name]) * other).clamp(0, 1)
        result.append(image)
    return torch.stack(result)


def random_erasing(images, draw, p, scale, ratio):
    """Sets a random rectangle to 0."""
    (height, width), images = images.shape[2:], images.clone()
    words = np.stack([draw(0x65726100 + i) for i in range(11)])
    for row in np.flatnonzero(words[0, 0] < p * 2 ** 32):
        for area, aspect, down, across in words[1:, :, row]:
            area = height * width * between(area, *scale)
            aspect = math.exp(between(aspect, math.log(ratio[0]), math.log(ratio[1])))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                top, left = below(down, height - h + 1), below(across, width - w + 1)
                images[row, :, top:top + h, left:left + w] = 0
                break
    return images


def windows(x, y, count, steps, first_target, target_steps, stride):
    """Windows of adjacent rows, none with rows of both parts; the first `count` rows are those of the training."""
    span = first_target + target_steps
    train, validation = np.arange(0, count - span + 1, stride), np.arange(count, len(x) - span + 1, stride)
    starts = np.concatenate([train, validation])
    return (np.stack([x[i:i + steps] for i in starts]), np.stack([y[i + first_target:i + span] for i in starts]),
            np.arange(len(train)), np.arange(len(train), len(starts)))


def rows_of_tokens(ids, block, stride):
    """Rows of adjacent tokens, and the tokens that follow each of them."""
    return ids[:-1].unfold(0, block, stride), ids[1:].unfold(0, block, stride)


def read_text(path, block, stride, truncate=1):
    """Tokens are characters, numbered in the order of their code points."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    codes = np.frombuffer(text[:int(truncate * len(text))].encode("utf-32-le"), "<u4")
    return rows_of_tokens(torch.tensor(np.unique(codes, return_inverse=True)[1]), block, stride)


def read_tokens(path, kind, block, stride):
    return rows_of_tokens(torch.tensor(np.fromfile(path, kind).astype("i8")), block, stride)


def synthetic(kind, rows, shape, targets, noise, seed):
    random, size = torch.Generator().manual_seed(seed), math.prod(shape)
    count = {"uniform": 0, "linear": (size + 1) * targets, "classes": size * targets}[kind]
    fixed, x, y = torch.empty(count).normal_(generator=random), [], []
    for _ in range(rows):
        if kind == "uniform":
            x.append(torch.empty(size).uniform_(generator=random))
            y.append(torch.empty(targets).uniform_(generator=random))
        elif kind == "linear":
            w, b = fixed[:size * targets].reshape(targets, size).double(), fixed[size * targets:].double()
            x.append(torch.empty(size).normal_(generator=random))
            y.append((w @ x[-1].double() / size ** 0.5 + b + torch.empty(targets).normal_(0, noise, generator=random)).float())
        else:
            y.append(torch.randint(targets, (), generator=random))
            x.append(fixed.reshape(targets, size)[y[-1]] + torch.empty(size).normal_(0, noise, generator=random))
    return torch.stack(x).reshape(rows, *shape).numpy(), torch.stack(y).numpy()


def parameters_of(model, types, patterns):
    """The parameters of modules of these types (None: all) whose names match a pattern, in their order."""
    for prefix, module in model.named_modules():
        if module is model if types is None else type(module) in types:
            for name, p in module.named_parameters(prefix):
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                    yield p


class BalancedSampler:
    """WeightedRandomSampler(1 / rows of the class), its draws distributed over the ranks."""
    def __init__(self, classes, world, rank, seed, drop_last=False):
        classes = classes.flatten().long()
        self.weights = 1 / torch.bincount(classes).double()[classes]
        self.seed, self.epoch, rows = seed, 0, len(classes)
        self.own = (rank + world * np.arange(rows // world if drop_last else -(-rows // world))) % rows

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.own)

    def __iter__(self):
        random = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.multinomial(self.weights, len(self.weights), True, generator=random)[self.own].tolist())


class IndexSampler(torch.utils.data.Sampler):
    """The rows of a file, (rows) or (epochs, rows), distributed over the ranks."""
    def __init__(self, path, world, rank, drop_last=False):
        orders, self.epoch = np.atleast_2d(np.load(path)), 0
        rows = orders.shape[1]
        self.orders = orders[:, (rank + world * np.arange(rows // world if drop_last else -(-rows // world))) % rows]

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.orders.shape[1]

    def __iter__(self):
        return iter(self.orders[self.epoch % len(self.orders)].tolist())


def fold(count, folds, number, seed=None):
    """The rows of KFold: training, validation."""
    order = np.arange(count) if seed is None else np.random.RandomState(seed).permutation(count)
    validation = np.sort(np.array_split(order, folds)[number])
    return np.setdiff1d(np.arange(count), validation), validation


def stratified_fold(classes, folds, number, seed=None):
    """The rows of StratifiedKFold."""
    random = np.random.RandomState(seed)
    _, first, classes = np.unique(classes, return_index=True, return_inverse=True)
    classes = np.argsort(np.argsort(first))[classes]  # in the order of their first rows
    in_order, of_row = np.sort(classes), np.zeros(len(classes), int)
    for c in range(len(first)):
        own = np.arange(folds).repeat([np.sum(in_order[i::folds] == c) for i in range(folds)])
        if seed is not None:
            random.shuffle(own)
        of_row[classes == c] = own
    return np.flatnonzero(of_row != number), np.flatnonzero(of_row == number)


def group_split(groups, n_validation, seed):
    """The rows of GroupShuffleSplit."""
    names, groups = np.unique(groups, return_inverse=True)
    is_validation = np.isin(groups, np.random.RandomState(seed).permutation(len(names))[:n_validation])
    return np.flatnonzero(~is_validation), np.flatnonzero(is_validation)


def group_fold(groups, folds, number):
    """The rows of GroupKFold: the largest groups first, each in the fold with the fewest rows."""
    _, groups, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rows, of_group = np.zeros(folds, int), np.zeros(len(sizes), int)
    for group in np.argsort(sizes, kind="stable")[::-1]:
        of_group[group] = rows.argmin()
        rows[of_group[group]] += sizes[group]
    return np.flatnonzero(of_group[groups] != number), np.flatnonzero(of_group[groups] == number)


def time_series_fold(count, folds, number):
    """The rows of TimeSeriesSplit."""
    size = count // (folds + 1)
    first = count - (folds - number) * size
    return np.arange(first), np.arange(first, first + size)


def trunc_normal_(p, mean, std, a, b):
    """nn.init.trunc_normal_ of PyTorch 2.15; earlier versions draw other numbers."""
    def share_below(x):
        return (1 + math.erf((x - mean) / std / math.sqrt(2))) / 2
    peak = ((min(max(mean, a), b) - mean) / std) ** 2 / 2
    p = p.data.fill_(math.nan)
    while p.isnan().any():
        if share_below(b) - share_below(a) > 0.3:
            drawn = torch.empty_like(p).normal_(mean, std)
            fits = (drawn >= a) & (drawn <= b)
        else:
            drawn, accepted = torch.empty_like(p).uniform_(a, b), torch.empty_like(p).uniform_()
            fits = accepted.log() <= peak - ((drawn - mean) / std).square() / 2
        p.copy_(torch.where(p.isnan() & fits, drawn, p))


def stratified_split(classes, n_validation, seed):
    """The rows of train_test_split(stratify=classes): training, validation."""
    random, n = np.random.RandomState(seed), len(classes)
    labels, classes = np.unique(classes, return_inverse=True)
    counts = np.bincount(classes)

    def shares(counts, wanted):
        exact = counts / counts.sum() * wanted
        floored = np.floor(exact)
        missing, rest = int(wanted - floored.sum()), exact - floored
        for value in np.sort(np.unique(rest))[::-1]:
            if missing == 0:
                break
            (ties,) = np.where(rest == value)
            chosen = random.choice(ties, size=min(len(ties), missing), replace=False)
            floored[chosen] += 1
            missing -= len(chosen)
        return floored.astype(int)
    n_train = n - n_validation
    of_train = shares(counts, n_train)
    of_validation = shares(counts - of_train, n_validation)
    train, validation = [], []
    for c in range(len(labels)):
        rows = np.where(classes == c)[0][random.permutation(counts[c])]
        train.extend(rows[:of_train[c]])
        validation.extend(rows[of_train[c]:of_train[c] + of_validation[c]])
    return random.permutation(train), random.permutation(validation)
