"""Many small models of one shape trained at once, the peers of bench/many.py: ten epochs with a new order of the rows in
each, one order for all models, an evaluation after each epoch, a learning rate for each model. One thread. Prints one JSON
line: model-steps per second without the time of compilation.

    many.py WAY SHAPE MODELS DATA.npz   WAY: vmap, bmm, compiled (bmm by torch.compile), jax (jit(vmap(scan)))
    many.py data SHAPE DATA.npz         writes the rows: x_train, y_train, x_test, y_test

SHAPE is widths, "+bn" for batch norm before each ReLU, "+dropout" for dropout of 0.1 after it: 13-64-3, wine;
30-128-64-2+bn, breast cancer; 8-256-256-1+dropout, a regression of 2,048 rows.
"""
import json, os, sys, time

import numpy as np

EPOCHS, BATCH, BETAS, EPS = 10, 32, (0.9, 0.999), 1e-8


class Shape:
    """Widths of the layers; ReLU between them, after batch norm or before dropout where the shape has it."""

    def __init__(self, text):
        widths, _, self.extra = text.partition("+")
        self.widths = [int(w) for w in widths.split("-")]
        self.layers = len(self.widths) - 1
        self.is_regression = self.widths[-1] == 1

    def parameters(self, models):
        """Arrays (models, ...) by name, uniform as nn.Linear's."""
        random, found = np.random.default_rng(1), {}
        for i, (n, m) in enumerate(zip(self.widths, self.widths[1:])):
            found[f"w{i}"] = random.uniform(-n**-0.5, n**-0.5, (models, n, m)).astype("f4")
            found[f"b{i}"] = random.uniform(-n**-0.5, n**-0.5, (models, 1, m)).astype("f4")
            if self.extra == "bn" and i + 1 < self.layers:
                found[f"g{i}"], found[f"s{i}"] = np.ones((models, 1, m), "f4"), np.zeros((models, 1, m), "f4")
        return found

    def running(self, models):
        return {f"{k}{i}": make((models, 1, self.widths[i + 1]), "f4") for i in range(self.layers - 1) if self.extra == "bn"
                for k, make in (("mean", np.zeros), ("var", np.ones))}


def train_torch(way, shape, models, x, y, xt, yt):
    import torch, torch.nn.functional as F
    torch.set_num_threads(1)
    tensors = lambda values: {k: torch.tensor(v) for k, v in values.items()}
    parameters, running = tensors(shape.parameters(models)), tensors(shape.running(models))
    x, y, xt, yt = (torch.tensor(v) for v in (x, y, xt, yt))
    rates = torch.logspace(-4, -1, models)

    def forward(p, run, rows, training, axis):
        """axis: of the rows, 1 with all models in one tensor, 0 within vmap."""
        h, new = rows, {}
        for i in range(shape.layers):
            h = torch.matmul(h, p[f"w{i}"]) + p[f"b{i}"]
            if i + 1 == shape.layers:
                return h, new
            if shape.extra == "bn":
                mean, var = run[f"mean{i}"], run[f"var{i}"]
                if training:
                    n = h.shape[axis]
                    mean, var = h.mean(axis, keepdim=True), h.var(axis, unbiased=False, keepdim=True)
                    new[f"mean{i}"] = torch.lerp(run[f"mean{i}"], mean.detach(), 0.1)
                    new[f"var{i}"] = torch.lerp(run[f"var{i}"], var.detach() * (n / (n - 1)), 0.1)
                h = (h - mean) * torch.rsqrt(var + 1e-5) * p[f"g{i}"] + p[f"s{i}"]
            h = torch.relu(h)
            if shape.extra == "dropout" and training:
                h = F.dropout(h, 0.1)

    def losses(h, targets, axis):
        """The mean of the rows, for each model."""
        if shape.is_regression:
            return ((h.squeeze(-1) - targets) ** 2).mean(axis)
        rows = h.log_softmax(-1)
        index = targets.view(-1, 1) if axis == 0 else targets.view(1, -1, 1).expand(h.shape[0], -1, 1)
        return -rows.gather(-1, index).squeeze(-1).mean(axis)

    if way == "vmap":
        def one(p, run, a, b):
            h, new = forward(p, run, a, True, 0)
            return losses(h, b, 0), new
        gradients = torch.func.vmap(torch.func.grad(one, has_aux=True), in_dims=(0, 0, None, None), randomness="different")
    else:
        def all_models(p, run, a, b):
            h, new = forward(p, run, a, True, 1)
            return losses(h, b, 1).sum(), new
        gradients = torch.func.grad(all_models, has_aux=True)

    def step(p, m, v, run, a, b, sizes, root):
        g, new = gradients(p, run, a, b)
        run.update(new)
        for k in p:
            m[k].lerp_(g[k], 1 - BETAS[0])
            v[k].mul_(BETAS[1]).addcmul_(g[k], g[k], value=1 - BETAS[1])
            p[k].sub_(sizes * m[k] / (v[k].sqrt() / root + EPS))

    def evaluate(p, run):
        return losses(forward(p, run, xt, False, 1)[0], yt, 1)

    if way == "compiled":  # one function for each number of rows: torch 2.9 cannot trace dropout within grad with an open number
        step, evaluate = (torch.compile(function, dynamic=False) for function in (step, evaluate))

    def run(p, running, epochs):
        m, v = ({k: torch.zeros_like(t) for k, t in p.items()} for _ in range(2))
        steps = 0
        for epoch in range(epochs):
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
            for index in order.split(BATCH):
                steps += 1
                sizes = (rates / (1 - BETAS[0]**steps)).view(-1, 1, 1)
                step(p, m, v, running, x[index], y[index], sizes, torch.tensor((1 - BETAS[1]**steps)**0.5))
            best = evaluate(p, running)
        return steps, best

    with torch.no_grad():
        copy = lambda values: {k: t.clone() for k, t in values.items()}
        run(copy(parameters), copy(running), 2)
        start = time.perf_counter()
        steps, best = run(parameters, running, EPOCHS)
        return steps, time.perf_counter() - start, float(best.min())


def train_jax(shape, models, x, y, xt, yt):
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax, jax.numpy as jnp
    rows, whole = len(x), len(x) // BATCH

    def forward(p, run, h, key, training):
        new = {}
        for i in range(shape.layers):
            h = h @ p[f"w{i}"] + p[f"b{i}"]
            if i + 1 == shape.layers:
                return h, new
            if shape.extra == "bn":
                mean, var = run[f"mean{i}"], run[f"var{i}"]
                if training:
                    n = h.shape[0]
                    mean, var = h.mean(0, keepdims=True), h.var(0, keepdims=True)
                    new[f"mean{i}"] = 0.9 * run[f"mean{i}"] + 0.1 * mean
                    new[f"var{i}"] = 0.9 * run[f"var{i}"] + 0.1 * var * (n / (n - 1))
                h = (h - mean) * jax.lax.rsqrt(var + 1e-5) * p[f"g{i}"] + p[f"s{i}"]
            h = jax.nn.relu(h)
            if shape.extra == "dropout" and training:
                key, own = jax.random.split(key)
                h = jnp.where(jax.random.bernoulli(own, 0.9, h.shape), h / 0.9, 0)

    def loss(h, targets):
        if shape.is_regression:
            return ((h[:, 0] - targets) ** 2).mean()
        return -jnp.take_along_axis(jax.nn.log_softmax(h), targets[:, None], 1).mean()

    def train(p, run, rate, key):
        def step(state, batch):
            p, m, v, run, t = state
            a, b = batch
            def value(p):
                h, new = forward(p, run, a, jax.random.fold_in(key, t), True)
                return loss(h, b), new
            g, new = jax.grad(value, has_aux=True)(p)
            t = t + 1
            m = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, m, g)
            v = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, v, g)
            size, root = rate / (1 - BETAS[0]**t), jnp.sqrt(1 - BETAS[1]**t)
            p = jax.tree.map(lambda p, m, v: p - size * m / (jnp.sqrt(v) / root + EPS), p, m, v)
            return (p, m, v, {**run, **new}, t), None

        def epoch(state, number):
            order = jax.random.permutation(jax.random.key(number), rows)
            a, b = x[order], y[order]
            cut = whole * BATCH
            state, _ = jax.lax.scan(step, state, (a[:cut].reshape(whole, BATCH, -1), b[:cut].reshape(whole, BATCH)))
            if cut < rows:
                state, _ = step(state, (a[cut:], b[cut:]))
            return state, loss(forward(state[0], state[3], xt, key, False)[0], yt)

        zeros = jax.tree.map(jnp.zeros_like, p)
        _, found = jax.lax.scan(epoch, (p, zeros, zeros, run, 0.0), jnp.arange(EPOCHS))
        return found[-1]

    many = jax.jit(jax.vmap(train))
    x, y, xt, yt = (jnp.array(v) for v in (x, y, xt, yt))
    arguments = ({k: jnp.array(v) for k, v in shape.parameters(models).items()}, {k: jnp.array(v) for k, v in shape.running(models).items()},
                 jnp.logspace(-4, -1, models), jax.random.split(jax.random.key(0), models))
    many(*arguments).block_until_ready()
    start = time.perf_counter()
    best = many(*arguments).block_until_ready()
    return EPOCHS * -(-rows // BATCH), time.perf_counter() - start, float(best.min())


def write_data(shape, path):
    inputs = shape.widths[0]
    if shape.is_regression:
        random = np.random.default_rng(0)
        x = random.normal(size=(2048, inputs))
        y = np.sin(x).sum(1) + 0.1 * random.normal(size=len(x))
    else:
        from sklearn import datasets
        x, y = {13: datasets.load_wine, 30: datasets.load_breast_cancer}[inputs](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = ((x - x.mean(0)) / x.std(0)).astype("f4")[order], y[order].astype("f4" if shape.is_regression else "i8")
    cut = len(x) * 4 // 5
    np.savez(path, x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])


if __name__ == "__main__":
    way, shape = sys.argv[1], Shape(sys.argv[2])
    if way == "data":
        write_data(shape, sys.argv[3])
    else:
        data, models = np.load(sys.argv[4]), int(sys.argv[3])
        parts = [data[name] for name in ("x_train", "y_train", "x_test", "y_test")]
        steps, seconds, best = train_jax(shape, models, *parts) if way == "jax" else train_torch(way, shape, models, *parts)
        print(json.dumps({"model_steps_per_s": steps * models / seconds, "best": best}))
